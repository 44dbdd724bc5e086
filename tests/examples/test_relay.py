"""The example runs as it is printed, and adds up."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.programs import nats_server

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_example_adds_up() -> None:
    nats_server()
    command = [sys.executable, "-m", "examples.relay"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert (ran.returncode, "600 events in the stream" in ran.stdout) == (0, True), ran.stderr

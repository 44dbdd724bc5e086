"""The example of the inbox runs with one command, and its account adds up."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.programs import nats_server

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_example_adds_up() -> None:
    nats_server()
    command = [sys.executable, "-m", "examples.inbox"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "every order has exactly one invoice" in run.stdout
    assert "600 messages, 300 receipts, 300 invoices for 300 orders" in run.stdout

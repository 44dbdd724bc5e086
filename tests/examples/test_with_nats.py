"""The examples that need a NATS server run as they are printed, with one command, and their accounts add up."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.programs import nats_server

ROOT = Path(__file__).parents[2]
SAID = {
    "examples.relay": ["600 events in the stream"],
    "examples.inbox": [
        "every order has exactly one invoice",
        "600 messages, 300 receipts, 300 invoices for 300 orders",
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("example", SAID)
def test_example_adds_up(example: str) -> None:
    nats_server()
    command = [sys.executable, "-m", example]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert [words for words in SAID[example] if words not in run.stdout] == []

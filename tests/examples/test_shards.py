"""The example with two databases adds up although one of them is killed, and says so by its exit code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.shards.account import LINES
from examples.shards.customers import CUSTOMERS, ORDERS_EACH
from examples.shards.shards import shard_of

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^ *(\S.*?) {2,}(\d+) +(\d+) *$", re.MULTILINE)


def test_a_customer_has_the_same_shard_in_every_process() -> None:
    """Another hash would look for everybody's rows elsewhere: these numbers never change."""
    shards = [shard_of(f"customer {number}", 2) for number in range(CUSTOMERS)]
    assert shards == [0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1]
    assert {shard_of(f"customer {number}", 5) for number in range(100)} == set(range(5))


@pytest.mark.slow
@pytest.mark.faults
def test_two_databases_add_up_although_one_dies() -> None:
    finished = subprocess.run(
        [sys.executable, "-u", "-m", "examples.shards"],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    text = finished.stdout
    assert finished.returncode == 0, text
    assert "the server of shard 1 is dead" in text, text
    assert "shard 2 goes on" in text, text
    account = {name: (int(first), int(second)) for name, first, second in ROW.findall(text)}
    assert set(account) == {line.strip() for line in LINES}, text
    assert sum(account["orders committed"]) == CUSTOMERS * ORDERS_EACH, text
    assert account["orders handled"] == account["orders committed"], text
    for nothing in ("lost", "handled twice", "handled out of order", "in the wrong shard", "still in the outbox"):
        assert account[nothing] == (0, 0), text

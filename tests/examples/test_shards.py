"""The example with two databases adds up although one of them is killed, and says so by its exit code."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.shards.account import LINES, Account
from examples.shards.customers import CUSTOMERS, ORDERS_EACH
from examples.shards.shards import shard_of
from tests.cases import each

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^ *(\S.*?) {2,}(\d+) +(\d+) *$", re.MULTILINE)

GOOD = Account(
    shard="shard 1",
    wanted=10,
    reported=10,
    refused=3,
    committed=10,
    receipts=10,
    delivered_again=1,
    dead=0,
    waiting=0,
    lost=0,
    twice=0,
    out_of_order=0,
    strangers=0,
)


def test_good_account_has_no_faults() -> None:
    assert GOOD.faults() == []


@each(
    ("change", "fault"),
    [
        ({"wanted": 11}, "every order was placed"),
        ({"reported": 9, "wanted": 9}, "every order that a customer was told of is there"),
        ({"receipts": 9}, "every order has a receipt"),
        ({"lost": 1}, "no message was lost"),
        ({"twice": 1}, "no message was handled twice"),
        ({"out_of_order": 1}, "the orders of each customer were handled in order"),
        ({"strangers": 1}, "every order is in the shard of its customer"),
        ({"dead": 1}, "there are no dead letters"),
        ({"waiting": 1}, "nothing is left in the outbox"),
    ],
)
def test_account_with_a_fault_names_it(change: dict[str, Any], fault: str) -> None:
    assert replace(GOOD, **change).faults() == [f"not true of shard 1: {fault}"]


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

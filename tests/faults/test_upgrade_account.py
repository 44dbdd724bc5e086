"""The account of an upgrade sees what no other account does: what comes again or early, and what 0.3 drops."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.cases import each
from tests.faults.account import LeaseChange
from tests.faults.upgrade_account import Sent, SideRun, upgrade_account

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=1)
SENT = [Sent("a", "plain", 1, NOON), Sent("b", "poison", 2, NOON), Sent("c", "timer", 3, LATER)]


def run(n: str, side: str, at: datetime, outcome: str) -> SideRun:
    return SideRun(n, 1, 1, None, 1, at, at, at, outcome, side)


RUNS = [run("a", "old", NOON, "done"), run("b", "new", NOON, "failed"), run("c", "new", LATER, "done")]
AGAIN = [*RUNS, run("a", "new", LATER, "done")]
BY_OLD = [replace(one, side="old") for one in RUNS]
IN_TIME = LeaseChange(1, None, UUID(int=1), NOON, UUID(int=2), NOON + timedelta(seconds=2), LATER)


@each(
    ("given", "wrongs"),
    [
        ({}, {}),
        ({"runs": RUNS[1:]}, {"lost": {"a"}}),
        ({"runs": RUNS[1:], "left": {1}}, {"left": {"a"}}),
        ({"dead": (2, 2)}, {"twice": {"b"}}),
        ({"runs": AGAIN}, {"again": {"a"}}),
        ({"runs": AGAIN, "leases": [IN_TIME]}, {}),
        ({"runs": [*RUNS[:2], run("c", "new", NOON, "done")]}, {"early": {"c"}}),
        ({"runs": BY_OLD, "dead": ()}, {"lost": {"b"}}),
        ({"runs": BY_OLD, "dead": (), "dropping": {"old"}}, {}),
        ({"dead": (), "dropping": {"old"}}, {"lost": {"b"}}),
    ],
)
def test_each_wrong_is_seen_and_nothing_else(given: dict[str, Any], wrongs: dict[str, object]) -> None:
    values: dict[str, Any] = {"runs": RUNS, "leases": [], "left": set(), "dead": (2,), "lease_seconds": 2.0}
    assert upgrade_account(sent=SENT, **(values | given)).wrongs() == wrongs

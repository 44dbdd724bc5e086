"""A fault excuses what it can touch, for as long as it can: made-up faults beside a renewal and a start that failed."""

from typing import Any

import pytest

from tests.faults.machine.checks.excuses import (
    AGAIN_SECONDS,
    OF_NATS,
    OF_THE_DATABASE,
    renewal_may_have_failed,
    start_may_have_failed,
)
from tests.faults.machine.history import NANO, Event
from tests.faults.machine.runs import Story, tell
from tests.faults.machine.strikes.catalogue import catalogue

EXCUSES_NOTHING = {
    # Processes: what they do not do is seen in their own history.
    *("child killed", "child stopped", "child frozen", "role rolled", "members added", "members removed"),
    "clock shifted",
    # These stand in nobody's way.
    *("sessions ended (listen)", "old snapshot held", "prepared transaction held", "analyze"),
    *("group sought", "dead letters replayed"),
}
PID, POOLED, ROW = 1, 2, 7


def story(kind: str, detail: str = "", **more: Any) -> Story:
    """A fault from 10 to 11 s, and two processes."""
    struck = {"fault": kind, "detail": detail, **more}
    return tell(
        [
            Event(0, PID, "worker", "born", {"pooled": False}),
            Event(0, POOLED, "worker", "born", {"pooled": True}),
            Event(10 * NANO, 9, "machine", "struck", struck),
            Event(11 * NANO, 9, "machine", "healed", {"fault": kind}),
        ]
    )


def test_of_every_kind_it_is_said_what_it_excuses() -> None:
    kinds = {strike.kind for strike in catalogue()}
    assert kinds == OF_THE_DATABASE.keys() | set(OF_NATS) | EXCUSES_NOTHING
    assert not EXCUSES_NOTHING & OF_THE_DATABASE.keys()


@pytest.mark.parametrize(
    ("since", "until", "is_excused"),
    [
        (6.0, 9.9, False),
        (7.0, 10.1, True),
        (10.5, 13.5, True),
        (11.0 + AGAIN_SECONDS - 0.1, 20.0, True),
        (11.0 + AGAIN_SECONDS + 0.1, 20.0, False),
    ],
    ids=["before", "at its beginning", "during", "soon after", "after"],
)
def test_fault_excuses_for_as_long_as_it_can_be_felt(since: float, until: float, is_excused: bool) -> None:
    cut = story("connections cut")
    assert renewal_may_have_failed(cut, pid=PID, row=ROW, since=since, until=until) == is_excused
    assert start_may_have_failed(cut, since, until) == is_excused


@pytest.mark.parametrize(
    ("fault", "excused"),
    [
        (story("failover"), {PID, POOLED}),
        (story("PgBouncer restarted"), {POOLED}),
        (story("rows locked", "2 rows", rows=[ROW, 8]), {PID, POOLED}),
        (story("rows locked", "1 rows", rows=[8]), set()),
        (story("table locked (share)", "outbox"), {PID, POOLED}),
        (story("table locked (share)", "outbox_dlq"), set()),
        (story("vacuum full", "outbox_log"), set()),
        (story("child frozen"), set()),
        (story("old snapshot held"), set()),
        (story("NATS restarted"), set()),
    ],
)
def test_fault_excuses_whom_it_touches(fault: Story, excused: set[int]) -> None:
    found = {pid for pid in (PID, POOLED) if renewal_may_have_failed(fault, pid=pid, row=ROW, since=9.0, until=12.0)}
    assert found == excused


def test_nats_keeps_processes_from_starting() -> None:
    assert start_may_have_failed(story("NATS restarted"), 10.5, 12.0)
    assert not start_may_have_failed(story("NATS restarted"), 20.0, 21.0)

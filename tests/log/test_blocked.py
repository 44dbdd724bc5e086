"""Keys that wait, and the pace of looking: pure bookkeeping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faststream_outbox._internal.log.blocked import DEFERRED, PARKED, RETRY, Blocked, Deferral
from faststream_outbox._internal.log.ordering.sequencer import BUSY_INTERVAL, IDLE_INTERVAL, LONGEST_WAIT, Pace
from faststream_outbox._internal.sql.log_rows import BlockedKey
from faststream_outbox._internal.sql.statements import named
from tests.cases import each


def deferral(key: str = "k", state: str = RETRY, delay: float = 0.0, slot: int = 7) -> Deferral:
    return Deferral(1, 1, slot, key, state, 0, delay)


def test_failed_message_blocks_its_key_until_it_is_due() -> None:
    blocked = Blocked(hold=False, most=10)
    blocked.put(deferral(delay=5.0), now=100.0)
    assert "k" in blocked
    assert blocked.due(104.9) == []
    assert blocked.due(105.0) == ["k"]
    assert blocked.next_due() == 105.0


def test_deferred_message_does_not_change_when_its_key_is_due() -> None:
    blocked = Blocked(hold=False, most=10)
    blocked.put(deferral(delay=5.0), now=100.0)
    blocked.put(deferral(state=DEFERRED), now=101.0)
    assert blocked.due(102.0) == []


@each(("hold", "is_blocked"), [(True, True), (False, False)])
def test_parked_message_blocks_its_key_where_keys_are_held(hold: bool, is_blocked: bool) -> None:
    blocked = Blocked(hold=hold, most=10)
    blocked.put(deferral(state=PARKED), now=100.0)
    assert ("k" in blocked) is is_blocked
    assert blocked.due(10**9) == []
    assert blocked.next_due() is None


def test_what_the_database_says_replaces_what_was_known() -> None:
    blocked = Blocked(hold=True, most=10)
    blocked.put(deferral("old"), now=100.0)
    rows = [("a", 1, RETRY, 2.5, 3), ("b", 2, PARKED, -7.0, 1), ("c", 3, RETRY, -7.0, 1)]
    blocked.load(named(BlockedKey, rows), now=200.0)
    assert "old" not in blocked
    assert blocked.due(200.0) == ["c"]
    assert blocked.next_due() == 200.0
    assert sorted(blocked.due(202.5)) == ["a", "c"]


def test_slot_is_stopped_when_too_many_wait_behind_one_of_its_keys() -> None:
    blocked = Blocked(hold=False, most=3)
    for count in range(3):
        assert blocked.waiting("k") == count
        assert blocked.halted() == set()
        blocked.put(deferral(state=DEFERRED if count else RETRY), now=0.0)
    assert blocked.waiting("k") == 3
    assert blocked.halted() == {7}


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100))), st.floats(0, 200))
def test_keys_are_due_by_their_first_message_only(puts: list[tuple[str, float]], now: float) -> None:
    blocked = Blocked(hold=False, most=1000)
    first: dict[str, float] = {}
    for key, delay in puts:
        first.setdefault(key, delay)
        blocked.put(deferral(key, delay=delay), now=0.0)
    assert set(blocked.due(now)) == {key for key, due in first.items() if due <= now}
    assert blocked.next_due() == min(first.values(), default=None)


def test_pace_is_fast_while_something_happens_and_slow_while_nothing_does() -> None:
    pace = Pace()
    assert pace.pause(1000.0) == IDLE_INTERVAL
    pace.found(1000.0)
    assert pace.pause(1001.0) == BUSY_INTERVAL
    assert pace.pause(1100.0) == IDLE_INTERVAL


@given(st.lists(st.sampled_from(["found", "missed", "heard"]), max_size=60), st.floats(0, 1000))
def test_pause_is_of_a_few_lengths_whatever_happens(calls: list[str], now: float) -> None:
    """Looking is cheap: only ticks in vain become seldom."""
    pace = Pace()
    for call in calls:
        if call == "missed":
            pace.missed(now, 7)
        else:
            getattr(pace, call)(now)
    assert pace.pause(now) in {BUSY_INTERVAL, IDLE_INTERVAL, 2 * IDLE_INTERVAL}


def in_vain(count: int, drawn: int = 7) -> Pace:
    """A pace after so many ticks that found nothing."""
    pace = Pace()
    for _ in range(count):
        pace.missed(0.0, drawn)
    return pace


@each(
    ("drawn", "now", "is_worth_it"),
    [(7, 0.9 * LONGEST_WAIT, False), (7, LONGEST_WAIT, True), (8, 0.0, True)],
)
def test_ticks_in_vain_become_seldom_but_never_end_and_what_is_newly_drawn_is_worth_one(
    drawn: int, now: float, is_worth_it: bool
) -> None:
    assert in_vain(5000).is_worth_it(drawn, now) is is_worth_it


def test_number_whose_transaction_takes_a_moment_is_looked_for_again_soon() -> None:
    """Drawn but not committed yet when it was first looked for, beside a gap that has been open for hours."""
    pace = in_vain(5000)
    pace.missed(0.0, 8)
    assert pace.is_worth_it(8, 2 * BUSY_INTERVAL)


def test_tick_that_found_something_ends_the_waiting() -> None:
    pace = in_vain(5000)
    pace.found(0.0)
    assert pace.is_worth_it(7, 0.0)
    assert pace.pause(0.0) == BUSY_INTERVAL

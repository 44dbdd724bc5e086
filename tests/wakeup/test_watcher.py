"""The watcher's bookkeeping: readings of the id sequence in, wake-ups and pauses out."""

import asyncio

import pytest

from faststream_outbox._internal.wakeup.watcher import (
    BUSY_INTERVAL,
    FIRST_WAKE,
    IDLE_INTERVAL,
    LONGEST_WAKE,
    QUIET_INTERVAL,
    SLEEPY_INTERVAL,
    STRANGER_SECONDS,
    WAKING_SECONDS,
    SequenceTracker,
    Watcher,
)
from tests.cases import each

Step = tuple[float, int | None, bool]
"""When, what the sequence says, and whether the claimers are woken."""


@pytest.mark.parametrize(
    ("steps", "accounted"),
    [
        pytest.param([(0.0, None, True), (1.0, None, False)], {}, id="untouched sequence"),
        pytest.param([(0.0, 7, True), (0.05, 7, False), (9.0, 7, False)], {}, id="nothing happens"),
        pytest.param([(0.0, 7, True), (0.05, 8, True)], {}, id="an id is drawn"),
        pytest.param([(0.0, None, True), (0.05, 1, True)], {}, id="the first id is drawn"),
        pytest.param([(0.0, 7, True), (0.05, 8, False)], {0.05: 1}, id="a hint came before the reading"),
        pytest.param([(0.0, 7, True), (0.05, 9, True)], {0.05: 1}, id="a hint tells of one of two"),
        pytest.param(
            [
                (0.0, 7, True),
                (0.05, 8, True),
                (0.051, 8, False),
                (0.053, 8, True),
                (0.055, 8, False),
                (0.058, 8, True),
            ],
            {},
            id="woken again at growing distances",
        ),
        pytest.param([(0.0, 7, True), (0.05, 8, True), (0.06, 8, False)], {0.06: 1}, id="a hint ends the waking"),
        pytest.param([(0.0, 7, True), (0.05, 8, True), (1.2, 8, False)], {}, id="not woken for ever"),
        pytest.param(
            [(0.0, 7, True), (0.05, 8, True), (1.2, 8, False), (1.25, 9, True)], {}, id="woken by the next id"
        ),
        pytest.param(
            [(0.0, 7, True), (0.05, 7, False), (2.0, 7, False), (2.05, 8, True)],
            {0.05: 5},
            id="too many hints are forgotten",
        ),
        pytest.param(
            [(0.0, 7, True), (0.05, 9, False), (2.0, 9, False), (2.05, 10, True)],
            {0.05: 5},
            id="hints for more than was drawn are forgotten",
        ),
        pytest.param([(0.0, 900, True), (0.05, 3, True)], {}, id="the sequence was restarted"),
    ],
)
def test_readings_wake_when_ids_are_drawn_that_no_hint_explains(steps: list[Step], accounted: dict[float, int]) -> None:
    tracker = SequenceTracker()
    woken = []
    for now, value, _ in steps:
        tracker.account(accounted.get(now, 0), value or 0)
        woken.append(tracker.read(value, now))
    assert woken == [expected for *_, expected in steps]


def test_hint_for_an_id_that_was_drawn_before_the_first_reading_explains_no_other() -> None:
    tracker = SequenceTracker()
    tracker.account(1, 1)
    tracker.read(2, 0.0)
    tracker.account(1, 2)
    assert tracker.read(3, 0.05)


def test_hint_of_a_transaction_that_was_open_for_long_explains_no_other_id() -> None:
    tracker = SequenceTracker(last=7)
    tracker.read(8, 0.0)
    tracker.read(8, 2 * WAKING_SECONDS)
    tracker.account(1, 8)
    assert tracker.read(9, 2 * WAKING_SECONDS + 0.05)


def _readings(tracker: SequenceTracker, value: int, until: float) -> tuple[int, int]:
    """How often the sequence is read and the claimers are woken until then, the value standing still."""
    now, reads, wakes = 0.0, 0, 0
    while now < until:
        wakes += tracker.read(value, now)
        reads += 1
        now += tracker.pause(now)
    return reads, wakes


@each(("moved_at", "interval"), [(0.0, IDLE_INTERVAL), (float("-inf"), SLEEPY_INTERVAL)])
def test_idle_sequence_is_read_seldom(moved_at: float, interval: float) -> None:
    reads, wakes = _readings(SequenceTracker(last=5, moved_at=moved_at), 5, until=10.0)
    assert reads == pytest.approx(10.0 / interval, abs=2)
    assert wakes == 0


def test_quiet_sequence_is_read_twice_a_second_where_everybody_tells() -> None:
    tracker = SequenceTracker(last=5)
    assert tracker.pause(0.0, hears=True) == QUIET_INTERVAL
    tracker.read(6, 100.0)
    tracker.account(1, 6)
    tracker.read(6, 200.0)
    assert tracker.pause(200.0, hears=True) == QUIET_INTERVAL


def test_sequence_is_read_more_often_after_ids_that_nobody_explained() -> None:
    tracker = SequenceTracker(last=5)
    tracker.read(6, 100.0)
    tracker.read(6, 102.0)
    assert tracker.pause(200.0, hears=True) == SLEEPY_INTERVAL
    assert tracker.pause(102.0 + STRANGER_SECONDS + 1, hears=True) == QUIET_INTERVAL


def test_one_stray_id_wakes_often_at_first_and_then_no_more() -> None:
    tracker = SequenceTracker(last=5)
    reads, wakes = _readings(tracker, 6, until=WAKING_SECONDS)
    assert reads <= WAKING_SECONDS / FIRST_WAKE
    assert WAKING_SECONDS / LONGEST_WAKE * 0.5 < wakes < WAKING_SECONDS / LONGEST_WAKE + 10
    assert tracker.pause(WAKING_SECONDS + 0.1) == IDLE_INTERVAL


def test_pause_is_short_while_ids_are_unexplained() -> None:
    tracker = SequenceTracker(last=5)
    tracker.read(6, 0.0)
    assert FIRST_WAKE <= tracker.pause(0.0) <= BUSY_INTERVAL
    tracker.account(1, 6)
    assert tracker.pause(0.0) == IDLE_INTERVAL


async def test_watcher_reads_and_wakes_until_cancelled() -> None:
    values = iter([1, 1, 2])
    woken = asyncio.Event()

    async def read() -> int:
        return next(values, 2)

    watching = asyncio.create_task(Watcher(read, woken.set, pytest.fail).run())
    for _ in ("the first reading", "the third"):
        await asyncio.wait_for(woken.wait(), 30)
        woken.clear()
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_failed_reading_is_told_and_tried_again() -> None:
    answers: list[int | OSError] = [1, OSError("gone"), OSError("still gone"), 2]
    woken, failures = asyncio.Event(), []

    async def read() -> int:
        answer = answers.pop(0) if answers else 2
        if isinstance(answer, OSError):
            raise answer
        return answer

    watching = asyncio.create_task(Watcher(read, woken.set, failures.append).run())
    for _ in ("the first reading", "the last"):
        await asyncio.wait_for(woken.wait(), 30)
        woken.clear()
    watching.cancel()
    assert [str(failure) for failure in failures] == ["gone", "still gone"]

"""The watcher's bookkeeping: readings of the id sequence in, wake-ups and pauses out."""

import asyncio

import pytest

from faststream_outbox.wakeup.watcher import (
    BUSY_INTERVAL,
    FIRST_POKE,
    IDLE_INTERVAL,
    LONGEST_POKE,
    POKING_SECONDS,
    QUIET_INTERVAL,
    SLEEPY_INTERVAL,
    STRANGER_SECONDS,
    Tide,
    Watcher,
)
from tests.cases import each

Step = tuple[float, int | None, bool]
"""When, what the sequence says, and whether the claimers are woken."""


@pytest.mark.parametrize(
    ("steps", "accounted"),
    [
        pytest.param([(0.0, None, False), (1.0, None, False)], {}, id="untouched sequence"),
        pytest.param([(0.0, 7, False), (0.05, 7, False), (9.0, 7, False)], {}, id="nothing happens"),
        pytest.param([(0.0, 7, False), (0.05, 8, True)], {}, id="an id is drawn"),
        pytest.param([(0.0, None, False), (0.05, 1, True)], {}, id="the first id is drawn"),
        pytest.param([(0.0, 7, False), (0.05, 8, False)], {0.05: 1}, id="a hint came before the reading"),
        pytest.param([(0.0, 7, False), (0.05, 9, True)], {0.05: 1}, id="a hint tells of one of two"),
        pytest.param(
            [
                (0.0, 7, False),
                (0.05, 8, True),
                (0.051, 8, False),
                (0.053, 8, True),
                (0.055, 8, False),
                (0.058, 8, True),
            ],
            {},
            id="woken again at growing distances",
        ),
        pytest.param([(0.0, 7, False), (0.05, 8, True), (0.06, 8, False)], {0.06: 1}, id="a hint ends the waking"),
        pytest.param([(0.0, 7, False), (0.05, 8, True), (1.2, 8, False)], {}, id="not woken for ever"),
        pytest.param(
            [(0.0, 7, False), (0.05, 8, True), (1.2, 8, False), (1.25, 9, True)], {}, id="woken by the next id"
        ),
        pytest.param(
            [(0.0, 7, False), (0.05, 7, False), (2.0, 7, False), (2.05, 8, True)],
            {0.05: 5},
            id="too many hints are forgotten",
        ),
        pytest.param(
            [(0.0, 7, False), (0.05, 9, False), (2.0, 9, False), (2.05, 10, True)],
            {0.05: 5},
            id="hints for more than was drawn are forgotten",
        ),
        pytest.param([(0.0, 900, False), (0.05, 3, True)], {}, id="the sequence was restarted"),
    ],
)
def test_readings_wake_when_ids_are_drawn_that_no_hint_explains(steps: list[Step], accounted: dict[float, int]) -> None:
    tide = Tide()
    woken = []
    for now, value, _ in steps:
        tide.account(accounted.get(now, 0))
        woken.append(tide.read(value, now))
    assert woken == [expected for *_, expected in steps]


def _readings(tide: Tide, value: int, until: float) -> tuple[int, int]:
    """How often the sequence is read and the claimers are woken until then, the value standing still."""
    now, reads, pokes = 0.0, 0, 0
    while now < until:
        pokes += tide.read(value, now)
        reads += 1
        now += tide.pause(now)
    return reads, pokes


@each(("moved_at", "interval"), [(0.0, IDLE_INTERVAL), (float("-inf"), SLEEPY_INTERVAL)])
def test_idle_sequence_is_read_seldom(moved_at: float, interval: float) -> None:
    reads, pokes = _readings(Tide(last=5, moved_at=moved_at), 5, until=10.0)
    assert reads == pytest.approx(10.0 / interval, abs=2)
    assert pokes == 0


def test_quiet_sequence_is_read_twice_a_second_where_everybody_tells() -> None:
    tide = Tide(last=5)
    assert tide.pause(0.0, hears=True) == QUIET_INTERVAL
    tide.read(6, 100.0)
    tide.account(1)
    tide.read(6, 200.0)
    assert tide.pause(200.0, hears=True) == QUIET_INTERVAL


def test_sequence_is_read_more_often_after_ids_that_nobody_explained() -> None:
    tide = Tide(last=5)
    tide.read(6, 100.0)
    tide.read(6, 102.0)
    assert tide.pause(200.0, hears=True) == SLEEPY_INTERVAL
    assert tide.pause(102.0 + STRANGER_SECONDS + 1, hears=True) == QUIET_INTERVAL


def test_one_stray_id_wakes_often_at_first_and_then_no_more() -> None:
    tide = Tide(last=5)
    reads, pokes = _readings(tide, 6, until=POKING_SECONDS)
    assert reads <= POKING_SECONDS / FIRST_POKE
    assert POKING_SECONDS / LONGEST_POKE * 0.5 < pokes < POKING_SECONDS / LONGEST_POKE + 10
    assert tide.pause(POKING_SECONDS + 0.1) == IDLE_INTERVAL


def test_pause_is_short_while_ids_are_unexplained() -> None:
    tide = Tide(last=5)
    tide.read(6, 0.0)
    assert FIRST_POKE <= tide.pause(0.0) <= BUSY_INTERVAL
    tide.account(1)
    assert tide.pause(0.0) == IDLE_INTERVAL


async def test_watcher_reads_and_pokes_until_cancelled() -> None:
    values = iter([1, 1, 2])
    poked = asyncio.Event()

    async def read() -> int:
        return next(values, 2)

    watching = asyncio.create_task(Watcher(read, poked.set, pytest.fail).run())
    await asyncio.wait_for(poked.wait(), 30)
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching


async def test_failed_reading_is_told_once_and_tried_again() -> None:
    answers: list[int | OSError] = [1, OSError("gone"), OSError("still gone"), 2]
    poked, failures = asyncio.Event(), []

    async def read() -> int:
        answer = answers.pop(0) if answers else 2
        if isinstance(answer, OSError):
            raise answer
        return answer

    watching = asyncio.create_task(Watcher(read, poked.set, failures.append).run())
    await asyncio.wait_for(poked.wait(), 30)
    watching.cancel()
    assert [str(failure) for failure in failures] == ["gone"]

"""Replays as tasks: the pace, the progress, the end."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from faststream_outbox._internal.dashboard.replays import MOST_KEPT, MOST_RUNNING, Replays, Run, ramped
from faststream_outbox._internal.queue.dead_letters import Replay, Selection
from faststream_outbox.errors import InvalidOption
from tests.cases import each
from tests.waiting import eventually


class Letters:
    """Dead letters that go back when they are let."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_end = asyncio.Event()
        self.rates: list[float | None] = []
        self.up_to: int | None = None
        self.error = error

    async def replay(
        self, selection: Selection, *, rate: Any, on_progress: Callable[[Replay], None], up_to: int
    ) -> Replay:
        self.up_to = up_to
        self.rates.append(rate(Replay(0)) if callable(rate) else rate)
        if self.error is not None:
            raise self.error
        on_progress(Replay(10, 4, (7,)))
        await self.may_end.wait()
        return Replay(10, 9, (7,))


def start(replays: Replays, letters: Letters, **changed: Any) -> Run:
    values: dict[str, Any] = {"said": {}, "up_to": 99, "expected": 10, "rate": None, "ramps": False, "user": "ada"}
    return replays.start(letters, Selection(everything=True), **(values | changed))  # type: ignore[arg-type]


@each(
    ("replayed", "rate"),
    [(0, 1.0), (9, 1.0), (10, 2.0), (29, 2.0), (30, 4.0), (70, 8.0), (149, 8.0), (150, 10.0), (10_000, 10.0)],
)
def test_ramp_doubles_every_ten_seconds_up_to_the_rate(replayed: int, rate: float) -> None:
    assert ramped(replayed, 10.0) == rate


def test_ramp_below_its_first_rate_is_that_rate() -> None:
    assert ramped(0, 0.5) == 0.5


async def test_progress_can_be_followed_to_the_end() -> None:
    replays, letters = Replays(), Letters()
    run = start(replays, letters)
    assert (run.state, run.total, run.settled) == ("running", 10, 0)
    await eventually(lambda: run.settled == 5)
    assert letters.up_to == 99, "what was counted is what is replayed"
    letters.may_end.set()
    await eventually(lambda: run.state == "done")
    assert (run.progress.replayed, run.settled, run.ended_at is not None) == (9, 10, True)
    assert not await replays.cancel(run.id)


async def test_failure_is_said() -> None:
    run = start(Replays(), Letters(InvalidOption("not so")))
    await eventually(lambda: run.state == "failed")
    assert run.error == "not so"


async def test_pace_is_passed_on() -> None:
    replays, letters = Replays(), Letters()
    start(replays, letters, rate=50.0)
    ramping = start(replays, letters, rate=50.0, ramps=True)
    await eventually(lambda: len(letters.rates) == 2)
    assert letters.rates == [50.0, 1.0]
    assert ramping.rate_now == 1.0
    await replays.close()
    assert {run.state for run in replays.all()} == {"cancelled"}


async def test_only_so_many_run_at_once_and_are_kept() -> None:
    replays, letters = Replays(), Letters()
    for _ in range(MOST_RUNNING):
        start(replays, letters)
    with pytest.raises(InvalidOption, match="replays run already"):
        start(replays, letters)
    await replays.close()
    letters.may_end.set()
    for _ in range(MOST_KEPT):
        run = start(replays, letters)
        await eventually(lambda run=run: run.state == "done")
    assert len(replays.all()) <= MOST_KEPT + 1

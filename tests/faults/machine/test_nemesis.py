"""Nemesis strikes as its seed says, never with two that exclude each other, and leaves everything whole."""

import asyncio
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import psycopg
import pytest

from tests.faults.machine import nemesis as nemesis_module
from tests.faults.machine.history import History, read
from tests.faults.machine.nemesis import Nemesis, plan
from tests.faults.machine.strikes.catalogue import catalogue
from tests.faults.machine.strikes.strike import Cast, NotHere, NotNow, Strike, exclude
from tests.faults.machine.strikes.striking import Nobody
from tests.faults.machine.world import Silence, World
from tests.waiting import eventually

PAUSES = (0.0, 0.001)


class Log:
    """Which strikes ran, and beside which others."""

    def __init__(self) -> None:
        self.running: list[Strike] = []
        self.order: list[str] = []
        self.most = 0
        self.excluded: list[tuple[str, str]] = []

    def begin(self, strike: Strike) -> None:
        self.excluded += [(strike.kind, other.kind) for other in self.running if exclude(strike, other)]
        self.running.append(strike)
        self.order.append(strike.kind)
        self.most = max(self.most, len(self.running))


class Pretended(Strike):
    """Takes a moment and breaks nothing."""

    def __init__(self, log: Log, kind: str, takes: str = "", shares: str = "") -> None:
        super().__init__()
        self.kind = kind
        self.takes = frozenset(takes.split())
        self.shares = frozenset(shares.split())
        self._log = log

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        self._log.begin(self)
        try:
            await asyncio.sleep(chance.uniform(0.0, 0.01))
        finally:
            self._log.running.remove(self)


class Impossible(Pretended):
    """Needs something that is not there."""

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        self._log.begin(self)
        self._log.running.remove(self)
        raise NotHere("no such thing")


class Early(Pretended):
    """Comes too early, whenever it comes."""

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        self._log.order.append(self.kind)
        raise NotNow("not yet")


class Broken(Pretended):
    """Fails."""

    def __init__(self, log: Log, kind: str, error: Exception) -> None:
        super().__init__(log, kind)
        self._error = error

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        raise self._error


def strikes(log: Log) -> list[Strike]:
    return [
        Pretended(log, "restart", takes="primary"),
        Pretended(log, "lock", takes="table", shares="primary"),
        Pretended(log, "vacuum", takes="table", shares="primary"),
        Pretended(log, "snapshot", shares="primary"),
        Pretended(log, "kill", takes="children"),
    ]


@pytest.fixture
def world() -> World:
    """One without servers: nothing here needs them."""
    world = World.__new__(World)
    world.seed = 7
    world.history = Silence()
    return world


async def test_same_seed_is_the_same_plan() -> None:
    first, second, other = (
        [(step.strike.kind, step.pause, step.chance.random()) for step in islice(plan(seed, catalogue()), 50)]
        for seed in (1, 1, 2)
    )
    assert first == second
    assert first != other


async def test_every_kind_has_a_name_of_its_own_and_comes_in_each_round() -> None:
    weights = {strike.kind: strike.weight for strike in catalogue()}
    assert len(weights) == len(catalogue())
    steps = plan(1, catalogue())
    for _ in range(3):
        assert Counter(step.strike.kind for step in islice(steps, sum(weights.values()))) == weights


async def test_two_that_exclude_each_other_never_run_at_once(world: World) -> None:
    log = Log()
    nemesis = Nemesis(world, Nobody(), strikes=strikes(log), at_once=3, pauses=PAUSES)
    await nemesis.run(1.0)
    assert (log.excluded, log.running) == ([], [])
    assert 1 < log.most <= 3
    assert nemesis.count.total() == len(log.order)


async def test_what_cannot_be_done_is_tried_once(world: World) -> None:
    log = Log()
    nemesis = Nemesis(world, Nobody(), strikes=[*strikes(log), Impossible(log, "impossible")], pauses=PAUSES)
    await nemesis.run(0.5)
    assert nemesis.skipped == {"impossible": "no such thing"}
    assert log.order.count("impossible") == 1


async def test_what_cannot_be_done_now_is_tried_again(world: World) -> None:
    log = Log()
    nemesis = Nemesis(world, Nobody(), strikes=[Early(log, "early")], pauses=PAUSES)
    await nemesis.run(0.5)
    assert (nemesis.skipped, nemesis.count.total()) == ({}, 0)
    assert log.order.count("early") > 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.OperationalError("no connection left"), "missed"),
        (TimeoutError(), "missed"),
        (ValueError("broken"), "failed"),
    ],
    ids=["the server does not let it", "it takes too long", "it is broken itself"],
)
async def test_strike_that_fails_is_told_and_the_run_goes_on(
    world: World, tmp_path: Path, error: Exception, kind: str
) -> None:
    log = Log()
    world.history = History(tmp_path)
    broken = Broken(log, "broken", error)
    nemesis = Nemesis(world, Nobody(), strikes=[*strikes(log), broken], pauses=PAUSES)
    await nemesis.run(0.5)
    assert log.running == []
    assert {event.kind for event in read(tmp_path)} == {kind}
    assert nemesis.count.keys() == {strike.kind for strike in strikes(log)}


async def test_nothing_is_broken_in_calm_windows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log, seen = Log(), list[int]()

    class Calm(Silence):
        def calm(self) -> None:
            seen.append(len(log.running))

    monkeypatch.setattr(nemesis_module, "CALM_EVERY", 0.1)
    monkeypatch.setattr(nemesis_module, "CALM_SECONDS", 0.01)
    world.history = Calm()
    await Nemesis(world, Nobody(), strikes=strikes(log), at_once=3, pauses=PAUSES).run(1.0)
    assert seen
    assert set(seen) == {0}


async def test_run_that_is_cancelled_heals(world: World) -> None:
    log = Log()
    task = asyncio.create_task(Nemesis(world, Nobody(), strikes=strikes(log), pauses=PAUSES).run(30.0))
    await eventually(lambda: log.running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log.running == []

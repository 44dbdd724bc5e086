"""Breaks a world on purpose: draws strikes by a seed, some at a time, and leaves everything whole.

The same seed gives the same strikes in the same order, with the same pauses and the same choices as far as the world
is the same. They come in rounds: each round has every kind, some more than once. Two strikes that exclude each other
never run at once: the later one waits. A strike that this world cannot have is left out from then on, and `skipped`
says why; one that is not possible at the moment, or for which the server had no connection or no lock, is passed over,
and the history is told of it. So it is of a strike that is itself at fault: the run goes on, and is judged a failure.
`Nemesis.run` returns when all strikes have healed.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from tests.faults.machine.strikes.catalogue import catalogue
from tests.faults.machine.strikes.strike import Cast, NotHere, NotNow, Strike, exclude
from tests.faults.machine.world import World

LONGEST = 400.0
"""Seconds that a strike may take on a busy machine; one that takes longer hangs."""

CALM_EVERY, CALM_SECONDS = 60.0, 15.0
"""At the end of each minute nothing is broken for so long: what it may still excuse is over soon."""
AT_ONCE = 2
PAUSES = (0.2, 3.0)


OF_THE_MOMENT = (NotNow, psycopg.Error, SQLAlchemyError, OSError, TimeoutError)
"""What may keep a strike from striking: servers that are down, full or locked, often by another strike."""


class Step(NamedTuple):
    """What comes next."""

    pause: float
    strike: Strike
    chance: Random


def plan(seed: int, strikes: Sequence[Strike], pauses: tuple[float, float] = PAUSES) -> Iterator[Step]:
    """Strikes without an end, the same ones for the same seed."""
    chance = Random(seed)
    while True:
        turns = [strike for strike in strikes for _ in range(strike.weight)]
        chance.shuffle(turns)
        for strike in turns:
            yield Step(chance.uniform(*pauses), strike, Random(chance.getrandbits(64)))


class Nemesis:
    """Strikes at one world and its cast.

    strikes: those to draw from; None is the whole catalogue.
    at_once: how many run at a time at most.
    pauses: the shortest and the longest time between two beginnings.
    """

    def __init__(
        self,
        world: World,
        cast: Cast,
        *,
        strikes: Sequence[Strike] | None = None,
        at_once: int = AT_ONCE,
        pauses: tuple[float, float] = PAUSES,
    ) -> None:
        self._world = world
        self._cast = cast
        self._strikes = catalogue() if strikes is None else list(strikes)
        self._at_once = at_once
        self._pauses = pauses
        self._running: dict[asyncio.Task[None], Strike] = {}
        self.count: Counter[str] = Counter()
        """How often each kind has struck and healed."""
        self.skipped: dict[str, str] = {}
        """Kinds that this world cannot have, and what is missing."""

    async def run(self, seconds: float) -> None:
        """Strike for so long, then heal everything."""
        loop = asyncio.get_running_loop()
        until, calm_at = loop.time() + seconds, loop.time() + CALM_EVERY - CALM_SECONDS
        try:
            for step in plan(self._world.seed, self._strikes, self._pauses):
                await asyncio.sleep(min(step.pause, max(0.0, until - loop.time())))
                if calm_at <= loop.time() < until:
                    await self._calm()
                    calm_at += CALM_EVERY
                if step.strike.kind in self.skipped:
                    continue
                await self._make_room(step.strike)
                if loop.time() >= until:
                    break
                self._running[asyncio.create_task(self._strike(step))] = step.strike
        finally:
            await self._heal()

    async def _calm(self) -> None:
        """Leave everything whole for a while."""
        await self._heal()
        self._world.history.calm()
        await asyncio.sleep(CALM_SECONDS)

    async def _make_room(self, strike: Strike) -> None:
        """Wait for those that exclude this one, and for one of too many."""
        while self._running:
            finished = [task for task in self._running if task.done()]
            for task in finished:
                del self._running[task]
            in_the_way = [task for task, other in self._running.items() if exclude(strike, other)]
            if len(self._running) >= self._at_once:
                await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            elif in_the_way:
                await asyncio.wait(in_the_way, return_when=asyncio.FIRST_COMPLETED)
            else:
                return

    async def _strike(self, step: Step) -> None:
        strike = step.strike
        try:
            async with asyncio.timeout(LONGEST):
                await strike.strike(self._world, self._cast, step.chance)
        except NotHere as missing:
            self.skipped[strike.kind] = str(missing)
        except OF_THE_MOMENT as error:
            self._world.history.missed(strike.kind, error)
        except Exception as error:
            self._world.history.failed(f"the strike {strike.kind!r}", error)
        else:
            self.count[strike.kind] += 1

    async def _heal(self) -> None:
        """Wait until every strike is over, also when the run was cancelled."""
        tasks, self._running = list(self._running), {}
        if tasks:
            await asyncio.wait(tasks)

"""Strikes at the lines to PostgreSQL and to NATS: cut, half-closed, silent, late."""

import asyncio
import contextlib
from collections.abc import Callable
from random import Random

from tests.faults.link import Direction, Link
from tests.faults.machine.strikes.strike import LINE, NATS, Cast, NotHere, Strike, linger
from tests.faults.machine.world import World
from tests.faults.trouble import ANSWERS, COMMITTED, REQUESTS, Trouble

LATE_SECONDS = (0.05, 0.3)
COMMIT_PATIENCE = 8.0
"""Seconds in which somebody should have committed something."""


def some(chance: Random, share: float) -> Callable[[Link], bool]:
    """A share of the connections, the same ones each time they are asked for."""
    salt = chance.getrandbits(32)
    return lambda link: Random(salt ^ link.port).random() < share


def draw_share(chance: Random) -> float:
    """Every connection, or a part of them."""
    return chance.choice((1.0, 1.0, 0.5, 0.2))


class Cut(Strike):
    """Connections are reset, some times in a row."""

    kind = "connections cut"
    takes = frozenset({LINE})
    weight = 2

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        times, share = chance.randint(1, 3), draw_share(chance)
        with world.fault(self.kind, f"{share:.0%} of them, {times} times"):
            for _ in range(times):
                world.line.cut(some(chance, share))
                await linger(chance, 0.0, 0.5)


class HalfClosed(Strike):
    """One end of connections hears a goodbye, the other one does not."""

    kind = "connections half-closed"
    takes = frozenset({LINE})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        direction, chosen = chance.choice(list(Direction)), some(chance, draw_share(chance))
        with world.fault(self.kind, direction.value):
            world.line.half_close(direction, chosen)
            try:
                await linger(chance, 0.5, 2.0)
            finally:
                world.line.cut(lambda link: bool(link.torn))


class AnswersLost(Strike):
    """The server acts, and what it answers arrives nowhere; connections are reset after that."""

    kind = "answers lost"
    takes = frozenset({LINE})
    weight = 2

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        share, seconds = draw_share(chance), chance.uniform(0.2, 2.0)
        trouble = Trouble(ANSWERS, swallow=True, only=some(chance, share))
        with world.fault(self.kind, f"on {share:.0%} of connections for {seconds:.1f} s"), world.line.trouble(trouble):
            await asyncio.sleep(seconds)


class RequestsLost(Strike):
    """What clients send arrives nowhere; connections are reset after that."""

    kind = "requests lost"
    takes = frozenset({LINE})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        share, seconds = draw_share(chance), chance.uniform(0.2, 2.0)
        trouble = Trouble(REQUESTS, swallow=True, only=some(chance, share))
        with world.fault(self.kind, f"on {share:.0%} of connections for {seconds:.1f} s"), world.line.trouble(trouble):
            await asyncio.sleep(seconds)


class CommitAnswersLost(Strike):
    """Only the answers to COMMIT arrive nowhere: callers cannot know what came of it."""

    kind = "answers to COMMIT lost"
    takes = frozenset({LINE})
    weight = 2

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        wanted = chance.randint(1, 5)
        with (
            world.fault(self.kind, f"until {wanted} are"),
            world.line.trouble(Trouble(ANSWERS, swallow_from=COMMITTED)),
        ):
            # Nobody may commit anything meanwhile.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(COMMIT_PATIENCE):
                    for _ in range(wanted):
                        await world.line.loses_answer()
            # Some hear of it by the reset, and those that wait no longer than this by themselves.
            await linger(chance, 0.0, 1.0)


class Late(Strike):
    """Everything comes later, one way or both."""

    kind = "line late"
    takes = frozenset({LINE})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        directions = chance.choice((ANSWERS, REQUESTS, ANSWERS | REQUESTS))
        most = chance.uniform(*LATE_SECONDS)
        trouble = Trouble(directions, delay=lambda: chance.uniform(LATE_SECONDS[0], most))
        with world.fault(self.kind, f"{LATE_SECONDS[0]:g} to {most:.2f} s"), world.line.trouble(trouble):
            await linger(chance, 1.0, 4.0)


class Slow(Strike):
    """A line of few bytes a second."""

    kind = "line slow"
    takes = frozenset({LINE})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        rate = chance.choice((5_000, 20_000, 100_000))
        with world.fault(self.kind, f"{rate} bytes a second"), world.line.trouble(Trouble(rate=rate)):
            await linger(chance, 1.0, 4.0)


class BlackHole(Strike):
    """Nothing arrives either way, and nobody is told."""

    kind = "line silent"
    takes = frozenset({LINE})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        share, seconds = draw_share(chance), chance.uniform(1.0, 5.0)
        trouble = Trouble(swallow=True, only=some(chance, share))
        with world.fault(self.kind, f"{share:.0%} of connections for {seconds:.1f} s"), world.line.trouble(trouble):
            await asyncio.sleep(seconds)


class NatsCut(Strike):
    """Connections to NATS are reset, or silent for a while and reset then."""

    kind = "NATS cut"
    takes = frozenset({NATS})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        line = world.nats_line
        if line is None:
            raise NotHere("no NATS in this world")
        silent = chance.choice((0.0, chance.uniform(0.5, 2.0)))
        with world.fault(self.kind, f"after {silent:.1f} s of silence"):
            with line.trouble(Trouble(swallow=True)):
                await asyncio.sleep(silent)
            line.cut()

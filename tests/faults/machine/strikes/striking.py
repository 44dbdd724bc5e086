"""Watching a strike: what a test needs to look at the world while something is broken."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.faults.machine.strikes.strike import Cast, Strike
from tests.faults.machine.world import World

PATIENCE = 60.0


class Witness:
    """A history that says what it was told, and when something is broken."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.is_struck = asyncio.Event()

    def struck(self, kind: str, detail: str, **_: Any) -> None:
        self.told.append((f"struck {kind}", detail))
        self.is_struck.set()

    def healed(self, kind: str) -> None:
        self.told.append((f"healed {kind}", ""))

    @property
    def words(self) -> list[str]:
        return [said for said, _ in self.told]


class Tame(random.Random):
    """A chance that always takes the first and the least, or what it was told to."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(1)
        self._number = number

    def choice(self, seq: Any) -> Any:
        return seq[self._number]

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * 0.3

    def randint(self, a: int, b: int) -> int:
        return a

    def random(self) -> float:
        return 0.5


class Nobody:
    """A cast without anybody, for strikes that hit no child."""

    alive: Sequence[Any] = ()

    def of(self, role: str) -> Sequence[Any]:
        return []

    async def start(self, role: str) -> Any:
        raise AssertionError("nobody is to be started")

    async def replace(self, child: Any) -> Any:
        raise AssertionError("nobody is to be replaced")


@asynccontextmanager
async def striking(
    strike: Strike, world: World, cast: Cast | None = None, chance: random.Random | None = None
) -> AsyncIterator[Witness]:
    """A strike that has begun, for the length of the block, and is over after it."""
    witness = Witness()
    world.history = witness
    task = asyncio.create_task(strike.strike(world, cast or Nobody(), chance or Tame()))
    begun = asyncio.create_task(witness.is_struck.wait())
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        try:
            yield witness
        finally:
            await task
    assert witness.words == [f"struck {strike.kind}", f"healed {strike.kind}"]

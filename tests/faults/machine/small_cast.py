"""A cast of a few workers of `tests.faults.child`, for `recovery` and for the tests of Nemesis.

They keep their record in a server that no strike concerns.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.faults.child import Part
from tests.faults.processes import WorkerProcess

WORKER = "worker"


class Worker(WorkerProcess):
    """A child that knows its role."""

    role = WORKER


class SmallCast:
    """Workers that all play the same part."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.children: list[Worker] = []

    @property
    def alive(self) -> list[Worker]:
        return [child for child in self.children if child.is_alive]

    def of(self, role: str) -> list[Worker]:
        return self.alive if role == WORKER else []

    async def start(self, role: str = WORKER, hang: str | None = None) -> Worker:
        """One more, which hangs where it is told to."""
        assert role == WORKER
        child = await Worker.start(replace(self._part, hang=hang))
        self.children.append(child)
        return child

    async def replace(self, child: Worker) -> Worker:
        await child.kill()
        return await self.start(child.role)


@asynccontextmanager
async def small_cast(part: Part, workers: int = 1) -> AsyncIterator[SmallCast]:
    """So many workers, which do not outlive the block."""
    cast = SmallCast(part)
    try:
        await asyncio.gather(*(cast.start() for _ in range(workers)))
        yield cast
    finally:
        await asyncio.gather(*(child.kill() for child in cast.children))

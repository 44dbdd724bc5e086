"""A cast of a few workers and a producer, for the tests of strikes and for `recovery`.

Workers are `tests.faults.child` and keep their record in a database that no strike concerns. The producer is a task
here, not a process: it publishes one message at a time, and knows which of them were certainly committed.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.faults.child import PLAIN, Part
from tests.faults.processes import WorkerProcess
from tests.faults.scene import Scene

WORKER = "worker"


class Worker(WorkerProcess):
    """A child that knows its role."""

    role = WORKER


class SmallCast:
    """Workers of one role."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self.children: list[Worker] = []

    @property
    def alive(self) -> list[Worker]:
        return [child for child in self.children if child.is_alive]

    def of(self, role: str) -> list[Worker]:
        return self.alive if role == WORKER else []

    async def start(self, role: str) -> Worker:
        assert role == WORKER
        child = await Worker.start(self._part)
        self.children.append(child)
        return child

    async def replace(self, child: Worker) -> Worker:
        await child.kill()
        return await self.start(child.role)


@asynccontextmanager
async def small_cast(
    scene: Scene, world: str, *, workers: int = 1, driver: str = "asyncpg", **options: Any
) -> AsyncIterator[SmallCast]:
    """Workers that do not outlive the block; `world` is their address of the outbox."""
    part = Part(
        world,
        scene.record,
        [PLAIN],
        1,
        driver,
        options={"lease_ttl_seconds": scene.lease_seconds, "max_workers": 4, **options},
    )
    cast = SmallCast(part)
    try:
        await asyncio.gather(*(cast.start(WORKER) for _ in range(workers)))
        yield cast
    finally:
        await asyncio.gather(*(child.kill() for child in cast.children))

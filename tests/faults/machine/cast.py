"""The cast: all processes under test, by role.

`Cast.standing(...)` starts none and leaves none. Every child gets a seed, a driver and a way of its own, drawn by the
cast's seed: asyncpg or psycopg, and through PgBouncer where there is one. A child that dies by itself is noted in the
history and replaced, as whatever runs processes in production does.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from tests.faults.child import READY
from tests.faults.forked import Forked
from tests.faults.machine.history import DIED, STOPPED, History
from tests.faults.machine.part import CONSUMER, PRODUCER, RELAY, ROLES, Part
from tests.faults.processes import WorkerProcess

LOOK_SECONDS = 0.5
POOLED = 0.25
"""The share of children behind the pooler."""


class Child(WorkerProcess):
    """One process."""

    program = "tests.faults.machine.child"
    # Several machines may start many at once.
    patience = 120.0

    def __init__(self, process: Forked, part: Part) -> None:
        super().__init__(process)
        self.part = part
        self.is_expected = False
        """Whether its end is on purpose."""

    @classmethod
    async def launch(cls, part: Part) -> Self:
        """Start it; what it writes to its standard error is kept beside its history."""
        with (Path(part.history) / f"{part.role}-{part.seed}.log").open("ab") as log:
            process = await Forked.start(cls.program, part.to_json(), stderr=log.fileno())
        child = cls(process, part)
        try:
            await child.reaches(READY)
        except BaseException:
            await child.kill()
            raise
        return child

    @property
    def role(self) -> str:
        return self.part.role

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.returncode

    async def kill(self) -> None:
        self.is_expected = True
        await super().kill()

    async def stop(self) -> int:
        self.is_expected = True
        return await super().stop()


class Cast:
    """The children of one run."""

    def __init__(self, history: History, part: Part, seed: int, *, pooled: str | None = None) -> None:
        self._history = history
        self._part = part
        self._pooled = pooled
        self._chance = random.Random(seed)
        self.children: list[Child] = []

    @classmethod
    @asynccontextmanager
    async def standing(
        cls, history: History, part: Part, seed: int, *, pooled: str | None = None
    ) -> AsyncIterator[Self]:
        """A cast that does not outlive the block; `part` has the addresses."""
        cast = cls(history, part, seed, pooled=pooled)
        tending = asyncio.create_task(cast._tend())
        try:
            yield cast
        finally:
            tending.cancel()
            await asyncio.wait([tending])
            await asyncio.gather(*(child.kill() for child in cast.children))

    @property
    def alive(self) -> list[Child]:
        return [child for child in self.children if child.is_alive]

    def of(self, role: str) -> list[Child]:
        """The living of a role."""
        return [child for child in self.alive if child.role == role]

    async def start(self, role: str, **changes: Any) -> Child:
        """One more of a role; `changes` are to its part."""
        assert role in ROLES
        is_pooled = self._pooled is not None and self._chance.random() < POOLED
        part = replace(
            self._part,
            role=role,
            seed=self._chance.getrandbits(32),
            driver=self._chance.choice(("asyncpg", "psycopg")),
            pooled=self._pooled if is_pooled else None,
        )
        child = await Child.launch(replace(part, **changes))
        self.children.append(child)
        return child

    async def start_all(self, numbers: Mapping[str, int]) -> None:
        """So many of each role, one role after the other."""
        for role, number in numbers.items():
            if role in (RELAY, CONSUMER) and self._part.nats is None:
                continue
            await asyncio.gather(*(self.start(role) for _ in range(number)))

    async def replace(self, child: Child) -> Child:
        """One of the same role with a new seed, in the place of one that may be dead."""
        await child.kill()
        return await self.start(child.role)

    async def stop(self, *roles: str) -> None:
        """Stop the living of these roles, or all, as an operator does; nobody else is started meanwhile."""
        told = [child for child in self.alive if not roles or child.role in roles]
        for child in told:
            child.is_expected = True
        codes = await asyncio.gather(*(child.stop() for child in told), return_exceptions=True)
        for child, code in zip(told, codes, strict=True):
            said = code if isinstance(code, int) else f"{type(code).__name__}"
            self._history.write(STOPPED, child=child.pid, of=child.role, code=said)

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for child in [child for child in self.children if not child.is_alive and not child.is_expected]:
                child.is_expected = True
                self._history.write(DIED, child=child.pid, of=child.role, code=child.code)
                with contextlib.suppress(AssertionError, TimeoutError):
                    await self.start(child.role)


__all__ = ["PRODUCER", "Cast", "Child"]

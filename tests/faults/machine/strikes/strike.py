"""What a strike is, whom it may hit, and what it needs for itself.

A strike breaks one thing, for a bounded time, and puts it right again before it returns, also when it fails or is
cancelled. It tells the world's history of its beginning and its end. `Nemesis` calls them; `catalogue` has them all.
"""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Protocol

import psycopg

from tests.faults.machine.world import World

PRIMARY = "primary"
"""The sessions of PostgreSQL: those that end them take it, those that need one for long share it."""
TABLE = "table"
LINE = "line"
CHILDREN = "children"
POOLER = "pooler"
NATS = "nats"

UNSTOPPABLE = "child did not stop in time"
STARTS = 4
"""How often a child is started before that is a failure."""

NOTHING: frozenset[str] = frozenset()


class NotHere(Exception):
    """This cannot be done in this world; the message says what is missing."""


class NotNow(Exception):
    """This cannot be done at the moment; the message says why."""


class Child(Protocol):
    """A process under test."""

    @property
    def role(self) -> str: ...

    @property
    def pid(self) -> int: ...

    @property
    def is_alive(self) -> bool: ...

    async def kill(self) -> Any: ...

    async def stop(self) -> Any: ...

    def freeze(self) -> Any: ...

    def thaw(self) -> Any: ...


class Cast(Protocol):
    """All processes under test."""

    @property
    def alive(self) -> Sequence[Child]: ...

    def of(self, role: str) -> Sequence[Child]: ...

    async def start(self, role: str) -> Child: ...

    async def replace(self, child: Any) -> Child:
        """Start one of the same role in its place; it may be dead already."""
        ...


class Strike(ABC):
    """One way to break something.

    roles: the roles of children that it concerns; none named is all.
    weight: how often it comes in a round.
    """

    kind: str
    """Its name in the history."""
    takes: frozenset[str] = NOTHING
    """What nobody else may use meanwhile."""
    shares: frozenset[str] = NOTHING
    """What nobody else may take meanwhile."""
    weight: int = 1

    def __init__(self, *, roles: Iterable[str] = (), weight: int | None = None) -> None:
        self.roles = frozenset(roles)
        if weight is not None:
            self.weight = weight

    @abstractmethod
    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        """Break it, and put it right again."""


def exclude(one: Strike, other: Strike) -> bool:
    """Whether two strikes must not run at the same time."""
    return bool(one.takes & (other.takes | other.shares) or other.takes & one.shares)


def choose(cast: Cast, roles: frozenset[str], chance: Random) -> Child:
    """One of the living of these roles."""
    living = [child for child in cast.alive if not roles or child.role in roles]
    if not living:
        raise NotNow("nobody of these roles is alive")
    return chance.choice(sorted(living, key=lambda child: (child.role, child.pid)))


async def stop(world: World, child: Child) -> None:
    """Ask a child to stop. One that does not in its time is ended, and that is told."""
    try:
        await child.stop()
    except TimeoutError:
        with world.fault(UNSTOPPABLE, f"{child.role} {child.pid}"):
            await child.kill()


async def replace(cast: Cast, child: Child) -> Child:
    """Another one in the place of a child; again where it could not start, as whoever runs processes does."""
    for left in reversed(range(STARTS)):
        try:
            return await cast.replace(child)
        except (AssertionError, OSError):
            # Another strike may keep it from starting.
            if not left:
                raise
    raise AssertionError("unreachable")


async def linger(chance: Random, least: float, most: float) -> None:
    """Let a fault last."""
    await asyncio.sleep(chance.uniform(least, most))


@asynccontextmanager
async def session(address: str, *, name: str = "strike") -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    """A session of a strike's own, in autocommit; its end is no error, as the server may be gone by then."""
    connection = await psycopg.AsyncConnection.connect(address, autocommit=True, application_name=name)
    try:
        yield connection
    finally:
        with contextlib.suppress(psycopg.Error):
            await connection.close()

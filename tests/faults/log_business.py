"""A business that publishes to the log: each transaction locks an aggregate and publishes its next versions.

Some transactions have written elsewhere before they take the lock, so that their xid is older than their place in
the order; some stay open for long, some roll back. Publishers use bare asyncpg connections: no reader hears of
their commits.
"""

import asyncio
import random
from dataclasses import dataclass
from time import perf_counter

import asyncpg
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox.log import Outbox, OutboxMessage
from tests.faults.log_account import Event
from tests.faults.log_scene import TOPIC, LogScene, log_tables


@dataclass(frozen=True, slots=True)
class Manner:
    """How a publisher goes about it."""

    names: int = 20
    """Aggregates to choose from."""
    rollbacks: float = 0.1
    most: int = 1
    """Versions in a transaction at most."""
    held: float = 0.1
    """The share of transactions that stay open for up to `longest` seconds; the others for up to `shortest`."""
    shortest: float = 0.01
    longest: float = 1.0
    pause: float = 0.01
    """Seconds between transactions at most."""


@dataclass(frozen=True, slots=True)
class Commit:
    """When COMMIT was sent, and whether its transaction had been held open before."""

    at: float
    held: bool


class LogBusiness:
    """Publishers of one test."""

    def __init__(self, scene: LogScene, seed: int) -> None:
        self._world = scene.world
        # Only its tables are used: publishing goes through the publishers' own connections.
        self._engine = create_async_engine(scene.world.replace("postgresql://", "postgresql+asyncpg://"))
        self._outbox = Outbox(self._engine, tables=log_tables())
        self._seed = seed
        self.commits: dict[Event, Commit] = {}
        self.positions: list[list[int]] = []
        """For each publisher the positions of what it committed, in that order."""
        self.is_closing = False
        """Whether every publisher is to end with the transaction that it is in."""

    async def close(self) -> None:
        await self._engine.dispose()

    async def publish(self, manner: Manner, *, transactions: int, name: int = 0) -> None:
        """So many transactions, one after the other."""
        chance = random.Random(f"{self._seed} {name}")
        connection = await asyncpg.connect(self._world)
        for _ in range(transactions):
            await self._transaction(connection, manner, chance, [])
        await connection.close()

    async def publish_for(self, manner: Manner, seconds: float, *, name: int = 0) -> None:
        """Transactions one after the other, for so long."""
        chance = random.Random(f"{self._seed} {name}")
        positions: list[int] = []
        self.positions.append(positions)
        until = perf_counter() + seconds
        connection = await asyncpg.connect(self._world)
        while perf_counter() < until and not self.is_closing:
            await self._transaction(connection, manner, chance, positions)
            await asyncio.sleep(chance.uniform(0.0, manner.pause))
        await connection.close()

    async def publish_with(self, publishers: int, manner: Manner, seconds: float) -> None:
        """So many publishers at once."""
        await asyncio.gather(*(self.publish_for(manner, seconds, name=number) for number in range(publishers)))

    async def _transaction(
        self, connection: asyncpg.Connection, manner: Manner, chance: random.Random, positions: list[int]
    ) -> None:
        name = f"a{chance.randrange(manner.names)}"
        versions = chance.randint(1, manner.most)
        rolls_back = chance.random() < manner.rollbacks
        is_held = chance.random() < manner.held
        open_for = chance.uniform(0.0, manner.longest if is_held else manner.shortest)
        transaction = connection.transaction()
        await transaction.start()
        if chance.random() < 0.5:
            await connection.execute("insert into notes (note) values ('before the lock')")
        last = await connection.fetchval(
            "insert into aggregates (name, version) values ($1, $2)"
            " on conflict (name) do update set version = aggregates.version + $2 returning version",
            name,
            versions,
        )
        events = [(name, version) for version in range(last - versions + 1, last + 1)]
        token = await self._outbox.publish(
            connection,
            *(OutboxMessage(f"{TOPIC}/{name}", {"name": name, "version": version}) for _, version in events),
        )
        await asyncio.sleep(open_for)
        if rolls_back:
            await transaction.rollback()
            return
        commit = Commit(perf_counter(), is_held)
        for event in events:
            self.commits[event] = commit
        await transaction.commit()
        positions += token.positions

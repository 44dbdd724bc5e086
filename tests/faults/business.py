"""A business that publishes: each transaction writes an order and its message, and some roll back.

Versions of a key are counted under a row lock, so that they are numbered in the order of their commits.
A commit whose answer is lost may have happened; `orders` knows.
"""

import asyncio
import random
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import MetaData, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.wakeup.wakeups import Wakeups
from faststream_outbox.events import Events
from faststream_outbox.publish import publish
from faststream_outbox.schema import Names, make_outbox_table
from tests.faults.scene import Scene


@dataclass(frozen=True, slots=True)
class Habit:
    """How a publisher goes about it."""

    queue: str
    keys: int = 0
    """Names of keys to choose from; 0 publishes without keys."""
    rollbacks: float = 0.2
    most: int = 3
    """Messages in a transaction at most."""
    longest: float = 0.02
    """Seconds that a transaction stays open at most."""
    pause: float = 0.02
    """Seconds between transactions at most."""


class Business:
    """Publishers of one test, on one engine."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.engine: AsyncEngine = create_async_engine(scene.world.replace("postgresql://", "postgresql+asyncpg://"))
        self._sessions = async_sessionmaker(self.engine)
        self._table = make_outbox_table(MetaData())
        self._wakeups = Wakeups(self.engine, Names.of(self._table), Events())
        self._seed = seed
        self.refused = 0
        """Transactions that failed because the server was gone."""

    async def close(self) -> None:
        await self.engine.dispose()

    async def publish(self, habit: Habit, *, transactions: int, name: int = 0) -> None:
        """So many transactions, one after the other."""
        chance = random.Random(f"{self._seed} {habit.queue} {name}")
        for _ in range(transactions):
            await self._transaction(habit, chance)

    async def publish_for(self, habit: Habit, seconds: float, *, name: int = 0) -> None:
        """Transactions one after the other, for so long, whatever befalls the server."""
        chance = random.Random(f"{self._seed} {habit.queue} {name}")
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            try:
                await self._transaction(habit, chance)
            except (OSError, SQLAlchemyError):
                self.refused += 1
                await asyncio.sleep(0.05)
            await asyncio.sleep(chance.uniform(0.0, habit.pause))

    async def _transaction(self, habit: Habit, chance: random.Random) -> None:
        key = f"{habit.queue}-{chance.randrange(habit.keys)}" if habit.keys else None
        ids = [UUID(int=chance.getrandbits(128), version=4) for _ in range(chance.randint(1, habit.most))]
        rolls_back = chance.random() < habit.rollbacks
        open_for = chance.uniform(0.0, habit.longest)
        async with self._sessions() as session:
            for message_id in ids:
                version = await self._order(session, habit.queue, key, message_id)
                envelope = Envelope(queue=habit.queue, body=b"%d" % version, key=key, message_id=message_id)
                await publish(session, self._table, envelope, wakeups=self._wakeups)
            await asyncio.sleep(open_for)
            await (session.rollback() if rolls_back else session.commit())

    async def _order(self, session: AsyncSession, queue: str, key: str | None, message_id: UUID) -> int:
        version = 1
        if key is not None:
            counted = await session.execute(
                text(
                    "insert into versions (key, version) values (:key, 1)"
                    " on conflict (key) do update set version = versions.version + 1 returning version"
                ),
                {"key": key},
            )
            version = counted.scalar_one()
        await session.execute(
            text("insert into orders (message_id, queue, key, version) values (:id, :queue, :key, :version)"),
            {"id": message_id, "queue": queue, "key": key, "version": version},
        )
        return version

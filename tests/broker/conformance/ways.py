"""The ways to run a broker: on PostgreSQL, in memory at once, in memory with the engine's loops.

A behaviour of the conformance suite is written once and must hold on each of them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from sqlalchemy import MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker, TestOutboxBroker, make_dlq_table, make_outbox_table
from faststream_outbox.broker.testing import fake_session
from tests.waiting import eventually

POSTGRES = "postgres"
MEMORY = "memory"
LOOPS = "memory with loops"


class Seen(list[Any]):
    """What handlers saw; `await seen.first(2)` waits for so many."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()

    def __call__(self, *values: Any) -> None:
        self.append(values[0] if len(values) == 1 else values)
        self._changed.set()

    async def first(self, count: int = 1) -> list[Any]:
        async with asyncio.timeout(30):
            while len(self) < count:
                self._changed.clear()
                await self._changed.wait()
        return self[:count]


class Way:
    """Makes brokers, runs them, publishes in a transaction, and looks into the tables."""

    def __init__(self, name: str, engine: AsyncEngine | None = None, tables: Iterable[Table] | None = None) -> None:
        self.name = name
        self.engine = engine
        if tables is None:
            metadata = MetaData()
            tables = make_outbox_table(metadata), make_dlq_table(metadata)
        self.table, self.dlq_table = tables
        self.test: Any = None
        self._broker: OutboxBroker | None = None

    @property
    def is_immediate(self) -> bool:
        """Whether `publish` handles the message before it returns."""
        return self.name == MEMORY

    def broker(self, **options: Any) -> OutboxBroker:
        """A broker that is not started."""
        options = {"outbox_table": self.table, "dlq_table": self.dlq_table, "logger": None} | options
        return OutboxBroker(self.engine, **options)

    @asynccontextmanager
    async def running(self, *brokers: OutboxBroker) -> AsyncIterator[OutboxBroker]:
        """The brokers, started; the first one publishes."""
        self._broker = brokers[0]
        if self.engine is None:
            self.test = TestOutboxBroker(*brokers, run_loops=self.name == LOOPS, connect_only=False)
            async with self.test:
                yield brokers[0]
            return
        try:
            for broker in brokers:
                await broker.start()
            yield brokers[0]
        finally:
            for broker in brokers:
                await broker.stop()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """A session whose transaction commits at the end."""
        if self.engine is None:
            yield fake_session()
            return
        async with AsyncSession(self.engine) as session, session.begin():
            yield session

    async def publish(self, *args: Any, through: Any = None, **options: Any) -> Any:
        """Publish with the broker, or through a publisher, in a transaction of its own."""
        async with self.transaction() as session:
            return await (through or self._broker).publish(*args, session=session, **options)

    async def publish_batch(self, *args: Any, **options: Any) -> Any:
        assert self._broker is not None
        async with self.transaction() as session:
            return await self._broker.publish_batch(*args, session=session, **options)

    async def publish_to_failing(self, *args: Any, **options: Any) -> None:
        """Publish to a handler that fails; in memory at once, that is raised to whoever publishes."""
        if not self.is_immediate:
            await self.publish(*args, **options)
            return
        with suppress(Exception, asyncio.CancelledError):
            await self.publish(*args, **options)

    async def rows(self, *, dead: bool = False) -> list[dict[str, Any]]:
        """The outbox, or the dead letters, as they stand."""
        if self.engine is None:
            client: Any = self.test.fake_client
            if dead:
                return list(client.dlq_rows)
            return [{name: getattr(row, name) for name in row.__slots__} for row in client.rows]
        name = (self.dlq_table if dead else self.table).name
        async with self.engine.connect() as connection:
            result = await connection.execute(text(f"select * from {name} order by id"))
            return [dict(row) for row in result.mappings()]

    async def empty(self) -> None:
        """Wait until no message is left."""

        async def no_message_is_left() -> bool:
            return not await self.rows()

        await eventually(no_message_is_left)

    async def attempted(self, times: int = 1) -> dict[str, Any]:
        """Wait until the only message has so many attempts behind it and is not leased; that message."""

        async def the_message_was_attempted_and_given_back() -> Any:
            rows = await self.rows()
            return [row for row in rows if row["attempts_count"] == times and row["acquired_token"] is None]

        (row,) = await eventually(the_message_was_attempted_and_given_back)
        return dict(row)

    async def died(self) -> dict[str, Any]:
        """Wait for the only dead letter."""

        async def there_is_a_dead_letter() -> Any:
            return await self.rows(dead=True)

        (row,) = await eventually(there_is_a_dead_letter)
        return dict(row)

"""The ways to run a broker: on PostgreSQL, in memory at once, in memory with the engine's loops.

A behaviour of the conformance suite is written once and must hold on each of them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cached_property
from typing import Annotated, Any

from faststream import Context
from sqlalchemy import MetaData, Table, create_engine, make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from faststream_outbox import OutboxBroker, TestOutboxBroker, make_dlq_table, make_outbox_table
from faststream_outbox._internal.schema.log_tables import LogTables, make_log_tables
from faststream_outbox.log import Outbox
from faststream_outbox.testing import fake_session
from tests.broker.conformance.differences import LOOPS, MEMORY
from tests.waiting import PATIENCE_SECONDS, eventually

NOWHERE = "postgresql+asyncpg://nobody@127.0.0.1:1/nothing"
"""The address of an engine whose sessions never connect."""


class Seen(list[Any]):
    """What handlers saw; `await seen.first(2)` waits for so many."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = asyncio.Event()
        self.patience = PATIENCE_SECONDS

    def __call__(self, *values: Any) -> None:
        self.append(values[0] if len(values) == 1 else values)
        self._changed.set()

    async def first(self, count: int = 1) -> list[Any]:
        async with asyncio.timeout(self.patience):
            while len(self) < count:
                self._changed.clear()
                await self._changed.wait()
        return self[:count]


def noting(place: Any, seen: Seen, *where: Any, note: Callable[[Any, Any], Any] | None = None, **options: Any) -> Any:
    """A handler of `orders`, or of what is named, that notes bodies, or what `note` makes of body and message."""

    async def handle(body: Any) -> None:
        seen(body)

    async def handle_message(body: Any, message: Annotated[Any, Context()]) -> None:
        assert note is not None
        seen(note(body, message))

    return _subscribed(place, where, options, handle_message if note else handle)


def failing(place: Any, *where: Any, error: Any = None, **options: Any) -> Any:
    """A handler that raises."""

    async def handle(body: Any) -> None:
        raise ValueError("broken") if error is None else error

    return _subscribed(place, where, options, handle)


def answering(place: Any, *where: Any, **options: Any) -> Any:
    """A handler that returns one more."""

    async def handle(body: int) -> int:
        return body + 1

    return _subscribed(place, where, options, handle)


def _subscribed(place: Any, where: tuple[Any, ...], options: dict[str, Any], handle: Any) -> Any:
    if not where and options.keys().isdisjoint({"queues", "topic"}):
        where = ("orders",)
    return place.subscriber(*where, **options)(handle)


class Way:
    """Makes brokers, runs them, publishes in a transaction, and looks into the tables."""

    def __init__(
        self,
        name: str,
        engine: AsyncEngine | None = None,
        tables: Iterable[Table] | None = None,
        log_tables: LogTables | None = None,
    ) -> None:
        self.name = name
        self.engine = engine
        self.patience = PATIENCE_SECONDS
        if tables is None:
            metadata = MetaData()
            tables = make_outbox_table(metadata), make_dlq_table(metadata)
            log_tables = make_log_tables(metadata, "outbox_log")
        self.table, self.dlq_table = tables
        self.log_tables = log_tables
        self.test: Any = None
        self._broker: OutboxBroker | None = None

    @property
    def is_immediate(self) -> bool:
        """Whether `publish` handles the message before it returns."""
        return self.name == MEMORY

    def broker(self, **options: Any) -> OutboxBroker:
        """A broker that is not started."""
        given = {"outbox_table": self.table, "dlq_table": self.dlq_table, "log_tables": self.log_tables, "logger": None}
        return OutboxBroker(self.engine, **given | options)

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

    @asynccontextmanager
    async def open_session(self) -> AsyncIterator[AsyncSession]:
        """An application's own session, whose end is up to the scenario; in memory it never connects."""
        engine = self.engine or create_async_engine(NOWHERE)
        async with AsyncSession(engine) as session:
            yield session

    @contextmanager
    def open_sync_session(self) -> Iterator[Session]:
        """The same without an event loop."""
        url = make_url(NOWHERE) if self.engine is None else self.engine.url
        engine = create_engine(url.set(drivername="postgresql+psycopg"))
        with Session(engine) as session:
            yield session
        engine.dispose()

    async def publish(self, *args: Any, caller_connection: Any = None, **options: Any) -> Any:
        """Publish with the broker, or through a publisher, in a transaction of its own."""
        async with self.transaction() as session:
            return await (caller_connection or self._broker).publish(*args, session=session, **options)

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

    async def eventually(self, predicate: Any) -> Any:
        """Wait as long as it takes; not long for what is known not to happen in this way."""
        return await eventually(predicate, self.patience)

    async def bodies(self, queue: str) -> list[bytes]:
        """What is in a queue, in order."""
        return [row["payload"] for row in await self.rows() if row["queue"] == queue]

    async def becomes(self, queue: str, *bodies: bytes) -> None:
        """Wait until this is in a queue, and nobody holds any of it."""

        async def it_is_so() -> bool:
            rows = [row for row in await self.rows() if row["queue"] == queue]
            return [row["payload"] for row in rows] == [*bodies] and not any(row["acquired_token"] for row in rows)

        await self.eventually(it_is_so)

    async def parked(self, group: str, topic: str) -> list[Any]:
        """What a group has parked."""
        found = self.test.fake_client.parked if self.engine is None else await self._operator.parked.list()
        return [each for each in found if (each.group, each.uri) == (group, topic)]

    async def becomes_parked(self, group: str, topic: str, *expected: Any) -> None:
        """Wait until a group has parked this: bodies, types of errors, attempts."""

        async def it_is_so() -> bool:
            found = await self.parked(group, topic)
            return [(each.message.payload, each.error_type, each.attempts) for each in found] == [*expected]

        await self.eventually(it_is_so)

    async def read_again(self, group: str, topic: str) -> None:
        """Let a group read everything again."""
        if self.engine is None:
            await self.test.fake_client.seek("earliest", group, topic)
            return
        async with AsyncSession(self.engine) as session, session.begin():
            await self._operator.seek(session, "earliest", group, topic)

    @cached_property
    def _operator(self) -> Outbox:
        assert self.engine is not None
        assert self.log_tables is not None
        return Outbox(self.engine, tables=self.log_tables, listen=False)

    async def close(self) -> None:
        """Give back what was opened for operators."""
        if "_operator" in self.__dict__:
            await self._operator.cleanup()

    async def empty(self) -> None:
        """Wait until no message is left."""

        async def no_message_is_left() -> bool:
            return not await self.rows()

        await self.eventually(no_message_is_left)

    async def attempted(self, times: int = 1) -> dict[str, Any]:
        """Wait until the only message has so many attempts behind it and is not leased; that message."""

        async def the_message_was_attempted_and_given_back() -> Any:
            rows = await self.rows()
            return [row for row in rows if row["attempts_count"] == times and row["acquired_token"] is None]

        (row,) = await self.eventually(the_message_was_attempted_and_given_back)
        return dict(row)

    async def died(self) -> dict[str, Any]:
        """Wait for the only dead letter."""

        async def there_is_a_dead_letter() -> Any:
            return await self.rows(dead=True)

        (row,) = await self.eventually(there_is_a_dead_letter)
        return dict(row)

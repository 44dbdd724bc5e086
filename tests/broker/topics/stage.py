"""One application with queues, topics and a table of its own, on PostgreSQL, and a look from outside."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from faststream import Context
from sqlalchemy import Table, insert, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.log.admin.parked import DeferredMessage
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.annotations import OutboxSession
from faststream_outbox.errors import UnknownName
from faststream_outbox.log import Outbox
from tests.queue.witness import Witness
from tests.waiting import PATIENCE_SECONDS, eventually

Then = Callable[[AsyncSession, Any], Awaitable[None]]
"""What a handler does with its session and its message."""


def reads(
    broker: Any,
    seen: list[Any],
    *bad: Any,
    topic: Any = "orders",
    group: str = "billing",
    notes: Callable[[Any, Any], Any] | None = None,
    returns: Callable[[Any], Any] | None = None,
    **options: Any,
) -> Any:
    """A group that notes each body or batch, or what is made of it, and then fails with the bad ones or answers."""

    @broker.subscriber(topic=topic, group=group, **options)
    async def handle(body: Any, message: Annotated[Any, Context()]) -> Any:
        seen.append(notes(body, message) if notes else body)
        if any(each in bad for each in (body if isinstance(body, list) else [body])):
            raise ValueError("broken")
        return returns(body) if returns else None

    return handle


class Stage:
    """Brokers on the same tables; `seen` is what handlers noted, `witness` what the first broker told."""

    def __init__(self, engine: AsyncEngine, tables: tuple[Table, Table], log_tables: LogTables, effects: Table) -> None:
        self.engine = engine
        self.table, self.dlq_table = tables
        self.log_tables = log_tables
        self.effects = effects
        self.outbox = Outbox(engine, tables=log_tables, listen=False)
        self.brokers: list[OutboxBroker] = []
        self.seen: list[Any] = []
        self.witness = Witness()
        self.broker = self.another()
        self.broker.client.events.subscribe(self.witness)

    def another(self, **options: Any) -> OutboxBroker:
        """One more broker on the same tables."""
        given = {"outbox_table": self.table, "dlq_table": self.dlq_table, "log_tables": self.log_tables}
        broker = OutboxBroker(options.pop("engine", self.engine), **{**given, "logger": None, **options})
        self.brokers.append(broker)
        return broker

    def replace(self, **options: Any) -> OutboxBroker:
        """A broker with options of its own, in place of the first one."""
        self.brokers.remove(self.broker)
        self.broker = self.another(**options)
        self.broker.client.events.subscribe(self.witness)
        return self.broker

    def reads(self, *bad: Any, broker: Any = None, **options: Any) -> Any:
        """A group that notes what it reads in `seen`."""
        return reads(broker or self.broker, self.seen, *bad, **options)

    def writes(self, then: Then | None = None, *, broker: Any = None, **options: Any) -> None:
        """A transactional group that notes what it reads, writes each number of it, and then does something more."""
        usual: dict[str, Any] = {"topic": "orders", "group": "billing", "transactional": True}

        @(broker or self.broker).subscriber(**usual | options)
        async def handle(body: Any, session: OutboxSession, message: Annotated[Any, Context()]) -> None:
            self.seen.append(body)
            for number in body if isinstance(body, list) else [body]:
                await self.write(session, number)
            if then is not None:
                await then(session, message)

    async def play(self, *bodies: Any, **options: Any) -> list[int]:
        """Start the broker and publish to a topic."""
        await self.broker.start()
        return await self.publish(*bodies, **options)

    async def send(self, body: Any, queue: str = "", **options: Any) -> Any:
        """Publish one message in a transaction of its own, to a topic unless a queue is named."""
        place = {"queue": queue} if queue else {"topic": "orders"}
        async with self.engine.begin() as connection:
            return await self.broker.publish(body, **place | options, session=connection)

    async def publish(
        self, *bodies: Any, topic: str = "orders", key: str | None = None, keys: Sequence[str | None] | None = None
    ) -> list[int]:
        """Publish to a topic, in one transaction; the positions."""
        async with AsyncSession(self.engine) as session, session.begin():
            return await self.broker.publish_batch(*bodies, topic=topic, key=key, keys=keys, session=session)

    async def saw(self, count: int, timeout: float = PATIENCE_SECONDS) -> list[Any]:
        """What handlers noted, once there is so much of it."""
        await eventually(lambda: len(self.seen) >= count, timeout, f"{count} things seen: {self.seen}")
        return self.seen

    async def deferred(self, group: str = "billing", topic: str = "orders") -> Sequence[DeferredMessage]:
        """What a group has deferred; nothing before it has read."""
        try:
            return await self.outbox.parked.list(group, topic, state=None)
        except UnknownName:
            return ()

    async def has_deferred(
        self, *states: str, group: str = "billing", topic: str = "orders"
    ) -> Sequence[DeferredMessage]:
        """What a group has deferred, once its states are these."""
        found: Sequence[DeferredMessage] = ()

        async def it_is_so() -> bool:
            nonlocal found
            found = await self.deferred(group, topic)
            return [each.state for each in found] == [*states]

        await eventually(it_is_so, PATIENCE_SECONDS, f"deferred: {states}")
        return found

    async def caught_up(self, group: str = "billing", topic: str = "orders") -> None:
        """Wait until a group has everything behind it and nothing deferred."""

        async def nothing_is_left() -> bool:
            await self.outbox.client.sequencer.catch_up()
            left = await self.sql(
                f"select 1 from {self.log_tables.log.name} l where (l.uri = '{topic}' or l.uri like '{topic}/%')"
                f" and not exists (select 1 from {self.log_tables.offsets.name} o where o.consumer_group = '{group}'"
                f" and o.uri = '{topic}' and l.slot between o.lo and o.hi and o.position >= l.position)"
            )
            return not left and not await self.deferred(group, topic)

        await eventually(nothing_is_left, PATIENCE_SECONDS)

    async def sql(self, statement: str) -> list[Any]:
        """The rows of a statement, committed."""
        async with self.engine.begin() as connection:
            result = await connection.execute(text(statement))
            return list(result.mappings()) if result.returns_rows else []

    async def write(self, session: AsyncSession, number: int) -> None:
        """An effect of a handler."""
        await session.execute(insert(self.effects).values(number=number))

    async def effect_numbers(self) -> list[int]:
        """The effects that are committed."""
        return [row["number"] for row in await self.sql(f"select number from {self.effects.name} order by 1")]

    async def wrote(self, *numbers: int, timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until the effects are exactly these."""

        async def they_are() -> bool:
            return await self.effect_numbers() == [*numbers]

        await eventually(they_are, timeout, f"effects: {numbers}")

    async def in_log(self, topic: str = "orders") -> list[dict[str, Any]]:
        """The rows of a topic, in the order of their positions."""
        rows = await self.sql(
            f"select * from {self.log_tables.log.name} where uri = '{topic}' or uri like '{topic}/%' order by position"
        )
        return [dict(row) for row in rows]

    async def in_queue(self, queue: str) -> list[bytes]:
        """The bodies of a queue."""
        rows = await self.sql(f"select payload from {self.table.name} where queue = '{queue}' order by id")
        return [row["payload"] for row in rows]

    async def slots(self, group: str = "billing") -> list[tuple[Any, int]]:
        """Who holds how many slots of a group; None is nobody."""
        rows = await self.sql(
            f"select owner, sum(hi - lo + 1)::int as size from {self.log_tables.offsets.name}"
            f" where consumer_group = '{group}' group by owner order by 2"
        )
        return [(row["owner"], row["size"]) for row in rows]

    async def shared_by(self, members: int, group: str = "billing") -> None:
        """Wait until so many members hold slots, and nobody else does."""

        async def it_is_so() -> bool:
            owners = [owner for owner, _ in await self.slots(group)]
            return None not in owners and len(owners) == members

        await eventually(it_is_so, PATIENCE_SECONDS, f"{members} members of {group} share its slots")

    async def close(self) -> None:
        """Stop everything."""
        await asyncio.gather(*(broker.stop() for broker in self.brokers))
        await self.outbox.cleanup()

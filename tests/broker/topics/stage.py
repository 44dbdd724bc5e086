"""One application with queues, topics and a table of its own, on PostgreSQL, and a look from outside."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Table, insert, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.log.admin.parked import DeferredMessage
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.errors import UnknownName
from faststream_outbox.log import Outbox
from tests.queue.witness import Witness
from tests.waiting import PATIENCE_SECONDS, eventually


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

"""An application with a table of its own, to see what committed together."""

from typing import Any

import pytest
from sqlalchemy import Table, insert, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker
from tests.waiting import eventually


class EffectsShop:
    """A broker, and handlers that write into the application's table."""

    def __init__(self, engine: AsyncEngine, tables: tuple[Table, Table], effects: Table) -> None:
        self.engine = engine
        self.outbox, self.dlq = tables
        self.effects = effects
        self.broker = OutboxBroker(engine, outbox_table=tables[0], dlq_table=tables[1], logger=None)

    async def write(self, session: AsyncSession, number: int) -> None:
        await session.execute(insert(self.effects).values(number=number))

    async def publish(self, *bodies: Any, queue: str = "orders") -> None:
        async with AsyncSession(self.engine) as session, session.begin():
            await self.broker.publish_batch(*bodies, queue=queue, session=session)

    async def deliver(self, *bodies: Any, queue: str = "orders") -> None:
        """Start, and publish."""
        await self.broker.start()
        await self.publish(*bodies, queue=queue)

    async def sql(self, statement: str) -> list[Any]:
        async with self.engine.begin() as connection:
            result = await connection.execute(text(statement))
            return list(result.mappings()) if result.returns_rows else []

    async def state(self) -> dict[str, Any]:
        """Numbers written, bodies of messages by queue, number of dead letters."""
        rows = await self.sql(f"select queue, payload from {self.outbox.name} order by id")
        queues: dict[str, list[bytes]] = {}
        for row in rows:
            queues.setdefault(row["queue"], []).append(row["payload"])
        numbers = await self.sql(f"select number from {self.effects.name} order by 1")
        dead = await self.sql(f"select id from {self.dlq.name}")
        return {"effects": [row["number"] for row in numbers], "messages": queues, "dead": len(dead)}

    async def becomes(self, **expected: Any) -> None:
        """Wait until the state is this."""
        expected = {"effects": [], "messages": {}, "dead": 0} | expected
        last: dict[str, Any] = {}

        async def it_is_so() -> bool:
            nonlocal last
            last = await self.state()
            return last == expected

        try:
            await eventually(it_is_so)
        except pytest.fail.Exception:
            assert last == expected
            raise

    async def failed(self) -> None:
        """Wait until the first attempt at the only order was written as failed; nothing else may be there."""

        async def the_order_waits_for_its_next_attempt() -> Any:
            return await self.sql(
                f"select 1 from {self.outbox.name} where attempts_count = 1 and acquired_token is null"
            )

        await eventually(the_order_waits_for_its_next_attempt)
        assert await self.state() == {"effects": [], "messages": {"orders": [b"1"]}, "dead": 0}

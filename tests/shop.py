"""A broker with a middleware that watches it, for tests of FastStream's own metrics and traces."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal.events.types import Handled
from faststream_outbox.broker import OutboxBroker
from tests.queue.witness import Witness


class Shop:
    """The broker, and what becomes of its messages."""

    def __init__(self, engine: AsyncEngine, table: Table, dlq_table: Table | None, middleware: Any) -> None:
        self.broker = OutboxBroker(engine, outbox_table=table, dlq_table=dlq_table, middlewares=[middleware])
        self.engine = engine
        self.witness = Witness()
        self.broker.client.events.subscribe(self.witness)

    async def publish(self, *bodies: Any, **options: Any) -> None:
        """One message after the other."""
        async with AsyncSession(self.engine) as session, session.begin():
            for body in bodies:
                await self.broker.publish(body, "orders", session=session, **options)

    async def publish_batch(self, *bodies: Any, **options: Any) -> None:
        """All at once."""
        async with AsyncSession(self.engine) as session, session.begin():
            await self.broker.publish_batch(*bodies, queue="orders", session=session, **options)

    async def serve(self, *bodies: Any, until: type[Any] = Handled, **fields: Any) -> None:
        """Start, publish, and wait until as many messages have come so far."""
        await self.broker.start()
        await self.publish(*bodies)
        await self.witness.wait(until, len(bodies), **fields)


@asynccontextmanager
async def open_shop(
    engine: AsyncEngine, table: Table, middleware: Any, dlq_table: Table | None = None
) -> AsyncGenerator[Shop]:
    """A shop, until its test ends."""
    shop = Shop(engine, table, dlq_table, middleware)
    yield shop
    await shop.broker.stop()

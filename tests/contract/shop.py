"""What the snippets about the ordered log presuppose: a shop with orders, and a broker to send to.

The order, its repository and the message broker are not the library's; here they are as small as the
snippets let them be. The repository writes to PostgreSQL in the session's transaction.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from faststream_outbox.log import Outbox, OutboxMessage
from tests.contract.running import run
from tests.log.opened import opened


@dataclass
class Order:
    """An order as an application would have it."""

    amount: Any = 100
    id: UUID = field(default_factory=uuid4)
    customer_id: UUID = field(default_factory=uuid4)


class Repository:
    """Saves orders in a session's transaction."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def save(self, order: Order) -> None:
        """Insert the order."""
        values = {"id": order.id, "amount": Decimal(order.amount)}
        await self._session.execute(text("insert into shop_order (id, amount) values (:id, :amount)"), values)


@dataclass
class FakeBroker:
    """A message broker that keeps what it was sent."""

    sent: list[tuple[str, Any, Any]] = field(default_factory=list)

    async def publish(self, *, topic: str, payload: Any, headers: Any) -> None:
        """Keep it."""
        self.sent.append((topic, payload, headers))


@dataclass
class Shop:
    """Everything that a snippet may name."""

    engine: AsyncEngine
    pool: async_sessionmaker[AsyncSession]
    outbox: Outbox
    session: AsyncSession
    order: Order = field(default_factory=Order)
    broker: FakeBroker = field(default_factory=FakeBroker)

    @property
    def names(self) -> dict[str, Any]:
        """The names that the document's snippets use and do not define."""
        return {
            "pool": self.pool,
            "outbox": self.outbox,
            "session": self.session,
            "repository": Repository(self.session),
            "order": self.order,
            "broker": self.broker,
            "correlation_id": "correlation",
            "causation_id": "causation",
            "uuid4": uuid4,
            "OutboxMessage": OutboxMessage,
        }

    async def orders(self) -> Sequence[UUID]:
        """The ids of the orders that are committed."""
        async with self.pool() as session:
            return list((await session.execute(text("select id from shop_order"))).scalars())

    async def run(self, snippet: str, **names: Any) -> dict[str, Any]:
        """Run a snippet, and commit."""
        async with self.session.begin():
            return await run(snippet, self.names | names)

    async def put(self, uri: str, *payloads: Any) -> None:
        """Publish payloads in one transaction, with an event_id each."""
        async with self.pool.begin() as session:
            await self.outbox.publish(
                session, *[OutboxMessage(uri, payload, {"event_id": str(uuid4())}) for payload in payloads]
            )

    async def payloads(self, consumer_group: str = "", uri: str = "", **options: Any) -> list[Any]:
        """What these say."""
        return [message.payload for message in await self.read(consumer_group, uri, **options)]

    async def read(self, consumer_group: str = "", uri: str = "", **options: Any) -> list[OutboxMessage]:
        """Everything that a group has yet to read, read now."""
        found: list[OutboxMessage] = []

        async def keep(message: OutboxMessage) -> None:
            found.append(message)

        while await self.outbox.dispatch(keep, consumer_group, uri, **options):
            pass
        return found


@asynccontextmanager
async def open_shop(engine: AsyncEngine, **options: Any) -> AsyncGenerator[Shop]:
    """A shop with its tables, closed and gone at the end."""
    pool = async_sessionmaker(engine, expire_on_commit=False)
    async with engine.begin() as connection:
        await connection.execute(text("create table shop_order (id uuid primary key, amount numeric not null)"))
    try:
        async with opened(engine, **options) as outbox, pool() as session:
            yield Shop(engine, pool, outbox, session)
    finally:
        async with engine.begin() as connection:
            await connection.execute(text("drop table shop_order"))

"""The application: one set of handlers for all shards, and orders that are written where their customer is.

A broker belongs to one database, and so does everything that a handler does in its transaction. The shards know
nothing of each other: when one is down, its messages wait, and those of the others are handled.
"""

from collections.abc import Sequence

from faststream import FastStream
from pydantic import BaseModel
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from examples.shards.models import Order, Receipt
from examples.shards.shards import Shard, home_of
from faststream_outbox.annotations import OutboxMessage, OutboxSession

ORDERS = "orders"
HANDLERS = 4
LEASE_SECONDS = 5.0


class OrderPlaced(BaseModel):
    """In the queue `orders`: somebody has to write a receipt."""

    customer: str
    number: int


async def write_receipt(placed: OrderPlaced, session: OutboxSession, msg: OutboxMessage) -> None:
    """The receipt and the end of the message are one commit, in the shard that the message came from."""
    delivery = msg.raw_message.deliveries_count
    session.add(Receipt(customer=placed.customer, number=placed.number, delivery=delivery))


def make_app(shards: Sequence[Shard]) -> FastStream:
    """One application with a broker for each shard, and the same handlers on all of them."""
    for shard in shards:
        subscriber = shard.broker.subscriber(
            ORDERS, transactional=True, max_workers=HANDLERS, lease_ttl_seconds=LEASE_SECONDS, max_fetch_interval=2.0
        )
        subscriber(write_receipt)
    return FastStream(*(shard.broker for shard in shards), logger=None)


async def place_order(shards: Sequence[Shard], customer: str, number: int) -> None:
    """The order and its message in one transaction, in the customer's shard.

    If the answer to the COMMIT was lost, nobody knows whether it came about: the customer asks again with the same
    number, and an order that is there already is not published twice.
    """
    shard = home_of(customer, shards)
    order = insert(Order).values(customer=customer, number=number).on_conflict_do_nothing().returning(Order.number)
    async with AsyncSession(shard.engine) as session, session.begin():
        if await session.scalar(order) is not None:
            placed = OrderPlaced(customer=customer, number=number)
            await shard.broker.publish(placed, ORDERS, key=customer, session=session)

"""Another team's service: it hears of orders by NATS and writes invoices, in any number of processes.

`faststream run examples.shop.billing:app`. NATS delivers an event again when a process dies before it has acknowledged.
The inbox has a receipt of each: the receipt and the invoice are one commit, so that no order gets two.
"""

import logging

from faststream import AckPolicy, FastStream
from faststream.nats import ConsumerConfig, JStream, NatsBroker, PullSub
from sqlalchemy.ext.asyncio import create_async_engine

from examples.shop.messages import EVENTS, STREAM, OrderPlaced
from examples.shop.models import Invoice, inbox_table
from examples.shop.outside import register
from examples.shop.settings import settings
from faststream_outbox import Inbox
from faststream_outbox.annotations import InboxSession

engine = create_async_engine(settings.database_url)
inbox = Inbox(engine, inbox_table, consumer="billing")
nats = NatsBroker(settings.nats_url, middlewares=[inbox.middleware], log_level=logging.DEBUG)
app = FastStream(nats)


@nats.subscriber(
    EVENTS,
    stream=JStream(STREAM),
    durable="billing",
    pull_sub=PullSub(batch_size=10),
    config=ConsumerConfig(ack_wait=settings.lease_seconds),
    max_workers=settings.max_workers,
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def bill(placed: OrderPlaced, session: InboxSession) -> None:
    """Write the invoice; exactly once, however often the event comes."""
    await register(placed.order_id)
    session.add(Invoice(order_id=placed.order_id, worker=settings.worker_name))


@app.after_shutdown
async def close() -> None:
    """Both are the application's."""
    await inbox.stop()
    await engine.dispose()

"""A billing service behind NATS: `python -m examples.inbox.consumer <database> <nats>`; it ends with its input."""

import asyncio
import os
import sys

from faststream import AckPolicy, FastStream
from faststream.nats import ConsumerConfig, JStream, NatsBroker, PullSub
from sqlalchemy import BigInteger, Column, MetaData, Table, insert
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import Inbox, make_inbox_table
from faststream_outbox.annotations import InboxSession

STREAM, SUBJECT = "shop", "shop.orders"
metadata = MetaData()
inbox_table = make_inbox_table(metadata)
invoices = Table("invoices", metadata, Column("order_id", BigInteger))


def make_app(database: str, address: str) -> FastStream:
    """The service: a broker with an inbox, and one handler."""
    engine = create_async_engine(database)
    inbox = Inbox(engine, inbox_table, consumer="billing")
    nats = NatsBroker(address, middlewares=[inbox.middleware], logger=None)

    @nats.subscriber(
        SUBJECT,
        stream=JStream(STREAM, declare=False),
        durable="billing",
        pull_sub=PullSub(batch_size=10),
        config=ConsumerConfig(ack_wait=1.0),
        max_workers=4,
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )
    async def bill(order_id: int, session: InboxSession) -> None:
        await session.execute(insert(invoices).values(order_id=order_id))

    inbox.check(nats)
    return FastStream(nats, logger=None, after_shutdown=[inbox.stop])


async def main() -> None:
    """Consume until the one who started this is gone."""
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), lambda: os._exit(0))
    await make_app(*sys.argv[1:]).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

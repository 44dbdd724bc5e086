"""A consumer of a stream of NATS, or of a queue of RabbitMQ, with an inbox, until it is killed.

`python -m tests.faults.inbox_child '<Consumer as JSON>'`.
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

import nats
from faststream import AckPolicy, FastStream
from sqlalchemy import BigInteger, Column, Identity, MetaData, Table, Text, insert
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import Inbox, make_inbox_table
from faststream_outbox.annotations import InboxSession
from tests.faults.child import READY, Told, say, until_told

STREAM, SUBJECT = "shop", "shop.orders"
metadata = MetaData()
inbox_table = make_inbox_table(metadata, "killed_inbox")
effects = Table(
    "killed_effects",
    metadata,
    Column("id", BigInteger, Identity(), primary_key=True),
    Column("source", Text),
    Column("key", Text),
    Column("n", BigInteger),
)


@dataclass(frozen=True, slots=True)
class Consumer(Told):
    """Which database, which broker, and how soon a message that was not acknowledged comes again.

    `in_order`: one message at a time, over all consumers; RabbitMQ's are always so.
    """

    world: str
    url: str
    ack_seconds: float = 1.0
    kind: str = "nats"
    place: str = SUBJECT
    in_order: bool = False


def subscriber_of_nats(consumer: Consumer, inbox: Inbox) -> tuple[Any, Any]:
    from faststream.nats import ConsumerConfig, JStream, NatsBroker, PullSub

    broker = NatsBroker(consumer.url, logger=None, middlewares=[inbox.middleware])
    at_once = 1 if consumer.in_order else 20
    return broker, broker.subscriber(
        consumer.place,
        stream=JStream(STREAM, declare=False),
        durable="billing",
        pull_sub=PullSub(batch_size=at_once, timeout=0.5),
        config=ConsumerConfig(ack_wait=consumer.ack_seconds, max_ack_pending=1 if consumer.in_order else 500),
        max_workers=1 if consumer.in_order else 10,
        ack_policy=AckPolicy.NACK_ON_ERROR,
    )


def subscriber_of_rabbit(consumer: Consumer, inbox: Inbox) -> tuple[Any, Any]:
    from faststream.rabbit import Channel, RabbitBroker, RabbitQueue

    rabbit = RabbitBroker(
        consumer.url, logger=None, middlewares=[inbox.middleware], default_channel=Channel(prefetch_count=1)
    )
    queue = RabbitQueue(consumer.place, declare=False)
    return rabbit, rabbit.subscriber(queue, ack_policy=AckPolicy.NACK_ON_ERROR)


async def is_drained(url: str) -> bool:
    """Whether NATS has nothing left for the consumers."""
    async with await nats.connect(url) as client:
        info = await client.jetstream().consumer_info(STREAM, "billing")
        return info.num_pending == 0 and info.num_ack_pending == 0


async def main(consumer: Consumer) -> None:
    ended = until_told()
    engine = create_async_engine(consumer.world.replace("postgresql://", "postgresql+asyncpg://"), pool_size=20)
    inbox = Inbox(engine, inbox_table, consumer="billing")
    broker, subscriber = (subscriber_of_rabbit if consumer.kind == "rabbit" else subscriber_of_nats)(consumer, inbox)

    @subscriber
    async def bill(order: dict[str, Any], session: InboxSession) -> None:
        await session.execute(insert(effects).values(**order))

    inbox.check(broker)
    app = FastStream(broker, logger=None)
    say(READY)
    await app.start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(Consumer(**json.loads(sys.argv[1]))))

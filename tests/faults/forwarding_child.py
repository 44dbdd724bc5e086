"""A worker process that forwards to NATS as the documentation says, until it is killed.

`python -m tests.faults.forwarding_child '<Route as JSON>'`.
"""

import asyncio
import json
import sys
from dataclasses import dataclass

from faststream import FastStream
from faststream.nats import NatsBroker
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import ExponentialRetry, OutboxBroker, make_dlq_table, make_outbox_table
from tests.faults.child import READY, Told, say, until_told

QUEUE, SUBJECT, STREAM = "to-nats", "shop.orders", "shop"


@dataclass(frozen=True, slots=True)
class Route(Told):
    """From where to where."""

    world: str
    nats: str
    lease_seconds: float


async def main(route: Route) -> None:
    ended = until_told()
    metadata = MetaData()
    outbox, outbox_dlq = make_outbox_table(metadata), make_dlq_table(metadata)
    engine = create_async_engine(route.world.replace("postgresql://", "postgresql+asyncpg://"))
    broker = OutboxBroker(engine, outbox_table=outbox, dlq_table=outbox_dlq, logger=None)
    nats = NatsBroker(route.nats, max_reconnect_attempts=-1, reconnect_time_wait=1, logger=None)

    @nats.publisher(SUBJECT, stream=STREAM, timeout=1)
    @broker.subscriber(
        QUEUE,
        retry_strategy=ExponentialRetry(initial_delay_seconds=0.1, max_delay_seconds=0.5),
        lease_ttl_seconds=route.lease_seconds,
        min_fetch_interval=0.2,
        max_fetch_interval=0.5,
        max_workers=10,
    )
    async def relay(number: int) -> int:
        return number

    app = FastStream(broker, nats, logger=None)
    say(READY)
    await app.start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(Route(**json.loads(sys.argv[1]))))

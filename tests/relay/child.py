"""A process that relays a queue and a topic to one broker, until it is killed.

`python -m tests.relay.child '<Route as JSON>'`. Ends at once when its standard input ends, so that it outlives no test.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from faststream import FastStream
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import OutboxBroker, make_dlq_table, make_outbox_table
from faststream_outbox._internal.relay.transport import RelayMessage, Result
from faststream_outbox.log import make_log_tables
from faststream_outbox.relay.sqs import SqsTransport
from tests.faults.child import READY, say
from tests.servers.sqs_server import SETTINGS

PLACE = "shop"
SENDER = "sent-by"
"""The header that says which process sent a message."""


@dataclass(frozen=True, slots=True)
class Route:
    """From where to where."""

    database: str
    kind: str
    url: str
    place: str = PLACE

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def target(route: Route) -> tuple[Any, Any]:
    """What to relay to, and its broker if FastStream has to start one."""
    sender = {SENDER: str(os.getpid())}
    if route.kind == "nats":
        from faststream.nats import NatsBroker

        nats = NatsBroker(route.url, max_reconnect_attempts=-1, reconnect_time_wait=1, logger=None)
        return nats.publisher(route.place, stream=PLACE, headers=sender), nats
    if route.kind == "redis":
        from faststream.redis import RedisBroker

        redis = RedisBroker(route.url, logger=None)
        return redis.publisher(stream=route.place, headers=sender), redis
    if route.kind == "rabbit":
        from faststream.rabbit import RabbitBroker

        rabbit = RabbitBroker(f"{route.url}?reconnect_interval=1", logger=None)
        return rabbit.publisher(route.place, headers=sender), rabbit
    if route.kind == "kafka":
        from faststream.kafka import KafkaBroker

        kafka = KafkaBroker(route.url, acks="all", logger=None)
        return kafka.publisher(route.place, headers=sender), kafka
    if route.kind == "confluent":
        from faststream.confluent import KafkaBroker as ConfluentBroker

        confluent = ConfluentBroker(route.url, acks="all", logger=None)
        return confluent.publisher(route.place, headers=sender), confluent
    return SignedSqs(route.place, endpoint_url=route.url, **SETTINGS), None


class SignedSqs(SqsTransport):
    """With a header of its own, as publishers of FastStream may have."""

    async def send(self, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        return await super().send([message.with_headers(**{SENDER: str(os.getpid())}) for message in messages])


async def main(route: Route) -> None:
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), lambda: os._exit(1))
    metadata = MetaData()
    broker = OutboxBroker(
        create_async_engine(route.database),
        outbox_table=make_outbox_table(metadata),
        dlq_table=make_dlq_table(metadata),
        log_tables=make_log_tables(metadata, "outbox_log"),
        logger=None,
    )
    to, other = target(route)
    options = {"lease_ttl_seconds": 2.0, "batch_size": 50, "max_in_flight": 200}
    broker.relay("orders", to=to, max_fetch_interval=1.0, min_fetch_interval=0.2, **options)
    broker.relay(topic="orders", group="out", to=to, **options)
    app = FastStream(broker, *([] if other is None else [other]), logger=None)
    await app.start()
    say(READY)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Route(**json.loads(sys.argv[1]))))

"""The brokers of a fault test: away for a time in the midst of traffic, and read at the end.

NATS, RabbitMQ and Redis are killed and started again. The mocks of Kafka and SQS keep what they have in memory: they
stand behind a proxy, which first swallows a confirm and then cuts them off.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from aio_pika import connect
from aiobotocore.session import get_session
from faststream.redis.parser import BinaryMessageFormatV1
from redis.asyncio import Redis

from tests.faults.proxy import Proxy, Way, proxy_to
from tests.relay.account import Arrived
from tests.relay.child import PLACE, SENDER
from tests.servers.kafka_cluster import KafkaCluster, TopicReader
from tests.servers.nats_server import NatsServer
from tests.servers.rabbit_server import RabbitServer
from tests.servers.redis_server import RedisServer
from tests.servers.sqs_server import SETTINGS, sqs_server, take_all
from tests.waiting import eventually

PATIENCE = 60.0
EMPTY_PAUSE_SECONDS = 0.05
SQS_QUEUE = "shop.fifo"


class FarEnd(ABC):
    """A broker."""

    place = PLACE

    def __init__(self, directory: Path) -> None:
        self.server: Any = None

    @property
    def url(self) -> str:
        return str(self.server.url)

    async def start(self) -> None:
        await self.server.start()

    async def close(self) -> None:
        """Be gone."""
        self.server.kill()

    async def outage(self, seconds: float) -> None:
        """Be gone for a time, without a goodbye."""
        await asyncio.to_thread(self.server.kill)
        await asyncio.sleep(seconds)
        await self.server.start()

    @abstractmethod
    async def arrived(self) -> list[Arrived]:
        """What has arrived, in order."""


class Nats(FarEnd):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.server = NatsServer(directory)

    async def arrived(self) -> list[Arrived]:
        return [_arrived(headers, body) for body, headers in await self.server.stored(PLACE)]


class RedisStream(FarEnd):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.server = RedisServer(directory)

    async def arrived(self) -> list[Arrived]:
        async with Redis.from_url(self.url) as client:
            rows = await client.xrange(PLACE)
        parsed = [BinaryMessageFormatV1.parse(row[b"__data__"]) for _, row in rows]
        return [_arrived(headers, body) for body, headers in parsed]


class Rabbit(FarEnd):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.server = RabbitServer(directory)

    async def start(self) -> None:
        await super().start()
        async with await connect(self.url) as connection:
            await (await connection.channel()).declare_queue(PLACE, durable=True)

    async def arrived(self) -> list[Arrived]:
        found: list[Arrived] = []
        async with await connect(self.url) as connection:
            queue = await (await connection.channel()).get_queue(PLACE)
            while (message := await queue.get(no_ack=True, fail=False)) is not None:
                found.append(_arrived({**message.headers, "message_id": message.message_id}, message.body))
        return found


class Proxied(FarEnd):
    """A mock that cannot restart, cut off by a proxy."""

    proxy: Proxy

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._stack = AsyncExitStack()

    async def outage(self, seconds: float) -> None:
        """Take messages and confirm none, be gone for a time, and come back."""
        before = self.proxy.swallowed
        self.proxy.way = Way.DEAF
        await eventually(lambda: self.proxy.swallowed > before, PATIENCE, "a confirm is swallowed")
        self.proxy.way = Way.BLACK_HOLE
        self.proxy.cut()
        await self.away(seconds)
        self.proxy.way = Way.OPEN
        self.proxy.cut()

    async def away(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._stack.aclose()

    async def _behind_proxy(self, port: int) -> None:
        self.proxy = await self._stack.enter_async_context(proxy_to(port))


class Kafka(Proxied):
    """Advertises the proxy's address, as clients go where the brokers of a cluster say that they are."""

    async def start(self) -> None:
        self._cluster = KafkaCluster()
        self._stack.callback(self._cluster.close)
        await self._behind_proxy(self._cluster.port)
        self._cluster.advertise(self.proxy.port)

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    async def away(self, seconds: float) -> None:
        self._cluster.down()
        await super().away(seconds)
        self._cluster.up()

    async def arrived(self) -> list[Arrived]:
        reader = TopicReader(self.url, PLACE)
        try:
            read = await asyncio.to_thread(reader.read_all)
        finally:
            await asyncio.to_thread(reader.close)
        return [_arrived({name: value.decode() for name, value in each.headers()}, each.value()) for each in read]


class Sqs(Proxied):
    """Emptied all the time; moto then forgets the ids, so duplicates are seen here that SQS would drop."""

    async def start(self) -> None:
        self._found: list[Arrived] = []
        address = self._stack.enter_context(sqs_server())
        await self._behind_proxy(int(address.rpartition(":")[2]))
        async with get_session().create_client("sqs", endpoint_url=address, **SETTINGS) as client:
            made = await client.create_queue(QueueName=SQS_QUEUE, Attributes={"FifoQueue": "true"})
        self.place = made["QueueUrl"]
        emptying = asyncio.create_task(self._keep_empty())
        self._stack.callback(emptying.cancel)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.proxy.port}"

    async def _keep_empty(self) -> None:
        while True:
            self._take()
            await asyncio.sleep(EMPTY_PAUSE_SECONDS)

    def _take(self) -> None:
        for message in take_all(SQS_QUEUE):
            headers = {name: value["StringValue"] for name, value in message.message_attributes.items()}
            self._found.append(_arrived(headers, message.body))

    async def arrived(self) -> list[Arrived]:
        self._take()
        return self._found


def _arrived(headers: Mapping[str, Any], body: str | bytes) -> Arrived:
    return Arrived(str(headers["message_id"]), json.loads(body), headers.get(SENDER))


FAR_ENDS: dict[str, type[FarEnd]] = {
    "nats": Nats,
    "redis": RedisStream,
    "rabbit": Rabbit,
    "kafka": Kafka,
    "confluent": Kafka,
    "sqs": Sqs,
}

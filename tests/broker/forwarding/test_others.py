"""Forwarding to RabbitMQ, Kafka and Redis: under the message's id, and not deleted before it is kept there."""

from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from faststream import FastStream
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue
from faststream.redis import RedisBroker
from redis.asyncio import Redis

from faststream_outbox._internal.outcomes.retry import ConstantRetry
from tests.broker.effects import EffectsShop
from tests.faults.proxy import Way, proxy_to
from tests.servers.kafka_cluster import TopicReader
from tests.servers.redis_server import RedisServer
from tests.waiting import eventually

SOON = ConstantRetry(delay_seconds=0.05)
PATIENCE = 30.0


def forward(shop: EffectsShop, publisher: Any) -> None:
    @publisher
    @shop.broker.subscriber("orders", retry_strategy=SOON)
    async def hand_over(number: int) -> int:
        return number


async def publish_one(shop: EffectsShop) -> str:
    await shop.publish(1)
    (row,) = await shop.sql(f"select message_id from {shop.outbox.name}")
    return str(row["message_id"])


async def first_order(address: str) -> Any:
    """A message of Kafka's topic."""
    reader = TopicReader(address, "orders")
    try:
        await eventually(lambda: reader.has(1), timeout=PATIENCE)
        return reader.found[0]
    finally:
        reader.close()


async def test_redis_stream_has_the_message_under_its_id(shop: EffectsShop, redis_server: RedisServer) -> None:
    redis = RedisBroker(redis_server.url, logger=None)
    forward(shop, redis.publisher(stream="orders"))
    message_id = await publish_one(shop)
    async with FastStream(shop.broker, redis, logger=None):
        await shop.becomes()
    async with Redis.from_url(redis_server.url) as client:
        ((_, fields),) = await client.xrange("orders")
    assert message_id.encode() in fields[b"__data__"]


@pytest.mark.parametrize("kind", [KafkaBroker, ConfluentBroker], ids=["aiokafka", "confluent"])
async def test_kafka_has_the_message_under_its_id(shop: EffectsShop, kafka_address: str, kind: Any) -> None:
    kafka = kind(kafka_address, acks="all", logger=None)
    forward(shop, kafka.publisher("orders"))
    message_id = await publish_one(shop)
    async with FastStream(shop.broker, kafka, logger=None):
        await shop.becomes()
    found = await first_order(kafka_address)
    assert found.value() == b"1"
    assert dict(found.headers())["message_id"] == message_id.encode()


async def test_messages_that_a_handler_made_of_one_have_no_id_of_it(shop: EffectsShop, kafka_address: str) -> None:
    kafka = KafkaBroker(kafka_address, acks="all", logger=None)

    @kafka.publisher("orders", batch=True)
    @shop.broker.subscriber("orders", retry_strategy=SOON)
    async def hand_over(number: int) -> list[int]:
        return [number, number + 1]

    await shop.publish(1)
    async with FastStream(shop.broker, kafka, logger=None):
        await shop.becomes()
    found = await first_order(kafka_address)
    assert "message_id" not in dict(found.headers())


@pytest.mark.slow
async def test_rabbit_message_without_a_queue_waits_in_the_outbox(shop: EffectsShop, amqp: str) -> None:
    queue = RabbitQueue(f"outbox_test_{uuid4().hex}", durable=True)
    rabbit = RabbitBroker(amqp, default_channel=Channel(on_return_raises=True), logger=None)
    forward(shop, rabbit.publisher(queue.name, persist=True))
    message_id = await publish_one(shop)

    async def it_has_failed_twice() -> Any:
        return await shop.sql(f"select 1 from {shop.outbox.name} where attempts_count >= 2")

    async with FastStream(shop.broker, rabbit, logger=None):
        await eventually(it_has_failed_twice, timeout=PATIENCE)
        declared = await rabbit.declare_queue(queue)
        try:
            await shop.becomes()
            found = await declared.get(no_ack=True)
        finally:
            await declared.delete(if_unused=False, if_empty=False)
    assert (found.body, found.message_id) == (b"1", message_id)


@pytest.mark.slow
async def test_rabbit_outage_loses_nothing(shop: EffectsShop, amqp: str) -> None:
    given = urlsplit(amqp)
    queue = RabbitQueue(f"outbox_test_{uuid4().hex}", durable=True)
    direct = RabbitBroker(amqp, logger=None)
    await direct.start()
    declared = await direct.declare_queue(queue)

    async def all_have_failed() -> bool:
        return len(await shop.sql(f"select 1 from {shop.outbox.name} where attempts_count > 0")) == 3

    try:
        async with proxy_to(given.port or 5672) as proxy:
            address = given._replace(netloc=f"{given.username}:{given.password}@127.0.0.1:{proxy.port}")
            rabbit = RabbitBroker(
                f"{address.geturl()}?reconnect_interval=1",
                default_channel=Channel(on_return_raises=True),
                logger=None,
            )
            forward(shop, rabbit.publisher(queue.name, persist=True))
            async with FastStream(shop.broker, rabbit, logger=None):
                proxy.way = Way.BLACK_HOLE
                proxy.cut()
                await shop.publish(1, 2, 3)
                await eventually(all_have_failed, timeout=PATIENCE)
                proxy.way = Way.OPEN
                proxy.cut()
                await shop.becomes()
        bodies = {(await declared.get(no_ack=True)).body for _ in range(3)}
    finally:
        await declared.delete(if_unused=False, if_empty=False)
        await direct.stop()
    assert bodies == {b"1", b"2", b"3"}

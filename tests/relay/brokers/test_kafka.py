"""Relay to Kafka, with both clients: the key is Kafka's key, and headers have the rest."""

from typing import Any

import pytest
from faststream import FastStream
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker

from faststream_outbox.events import Died
from tests.broker.topics.stage import Stage
from tests.relay.publishing import is_empty, own_id, publish, relaying
from tests.servers.kafka_cluster import TopicReader
from tests.waiting import eventually


@pytest.fixture(params=[KafkaBroker, ConfluentBroker], ids=["aiokafka", "confluent"])
def kafka(request: pytest.FixtureRequest, kafka_address: str) -> Any:
    return request.param(kafka_address, acks="all", logger=None)


async def read(address: str, count: int, topic: str = "shop") -> list[Any]:
    reader = TopicReader(address, topic)
    try:
        await eventually(lambda: reader.has(count))
        return reader.found
    finally:
        reader.close()


async def test_everything_is_in_its_place(stage: Stage, kafka: Any, kafka_address: str) -> None:
    stage.broker.relay("orders", to=kafka.publisher("shop"))
    headers = {"traceparent": "00-1-2-01", "tenant": 7}
    await publish(stage, {"id": 1}, correlation_id="cor-1", headers=headers, key="order-1")
    message_id = await own_id(stage)
    async with FastStream(stage.broker, kafka, logger=None):
        await is_empty(stage)
        (found,) = await read(kafka_address, 1)
    assert (found.value(), found.key()) == (b'{"id":1}', b"order-1")
    arrived = {name: value.decode() for name, value in found.headers()}
    assert arrived == {
        "message_id": message_id,
        "correlation_id": "cor-1",
        "content-type": "application/json",
        "traceparent": "00-1-2-01",
        "tenant": "7",
    }


async def test_all_arrive_in_order_per_key(stage: Stage, kafka: Any, kafka_address: str) -> None:
    stage.broker.relay(topic="orders", group="billing", to=kafka.publisher("shop"))
    await stage.publish(*range(100), keys=[str(number % 7) for number in range(100)])
    async with FastStream(stage.broker, kafka, logger=None):
        await stage.caught_up()
        found = await read(kafka_address, 100)
    for key in range(7):
        of_key = [int(each.value()) for each in found if each.key() == str(key).encode()]
        assert of_key == [*range(key, 100, 7)]


async def test_uris_say_the_topic_and_the_key(stage: Stage, kafka: Any, kafka_address: str) -> None:
    stage.broker.relay(topic="kafka://", group="out", to={"kafka": kafka})
    await stage.publish(1, topic="kafka://shop", key="a/b")
    async with FastStream(stage.broker, kafka, logger=None):
        (found,) = await read(kafka_address, 1)
    assert (found.value(), found.key()) == (b"1", b"a/b")


async def test_what_is_too_large_is_a_dead_letter_and_others_pass(stage: Stage, kafka: Any, kafka_address: str) -> None:
    async with relaying(stage, kafka.publisher("shop"), kafka, b"x" * 2_000_000, b"small"):
        await stage.witness.wait(Died)
        (found,) = await read(kafka_address, 1)
    assert found.value() == b"small"

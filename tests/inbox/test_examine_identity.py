"""What a message is known by: what was sent with it, and never what FastStream makes up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.confluent import TestKafkaBroker as TestConfluentBroker
from faststream.kafka import KafkaBroker, TestKafkaBroker
from faststream.nats import NatsBroker, TestNatsBroker
from faststream.rabbit import RabbitBroker
from faststream.rabbit.message import RabbitMessage
from faststream.redis import RedisBroker, StreamSub, TestRedisBroker

from faststream_outbox import Inbox
from faststream_outbox._internal.inbox.examine import given_id, source_of
from faststream_outbox.errors import MissingMessageId
from tests.inbox.conftest import Scene

BROKERS: dict[str, tuple[Any, Any]] = {
    "nats": (NatsBroker, TestNatsBroker),
    "kafka": (KafkaBroker, TestKafkaBroker),
    "confluent": (ConfluentBroker, TestConfluentBroker),
    "redis": (RedisBroker, TestRedisBroker),
}


pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


@asynccontextmanager
async def listening(inbox: Inbox, family: str = "nats") -> AsyncIterator[Any]:
    """A broker with a handler that does nothing."""
    make, test = BROKERS[family]
    broker = make(middlewares=[inbox.middleware])

    @broker.subscriber("orders")
    async def bill(order: str) -> None: ...

    async with test(broker):
        yield broker


@pytest.mark.parametrize("family", BROKERS)
async def test_message_without_an_id_is_refused_and_a_header_is_the_id(scene: Scene, family: str) -> None:
    async with listening(scene.inbox(), family) as broker:
        for options in ({}, {"correlation_id": "c1"}):
            with pytest.raises(MissingMessageId, match=r"headers=\{'message_id'.*Inbox\(…, message_id="):
                await broker.publish("chair", "orders", **options)
        assert (scene.reported, await scene.receipts()) == ([], [])
        for _ in range(2):
            await broker.publish("chair", "orders", headers={"message_id": "m1"})
    assert (await scene.receipts(), scene.duplicates) == ([("billing", "orders", "m1")], 1)


@pytest.mark.parametrize(("sent", "found"), [("m1", "m1"), (None, None)])
async def test_property_is_the_id_of_rabbitmq(sent: str | None, found: str | None) -> None:
    class Raw:
        message_id = sent

    message = RabbitMessage(Raw(), b"", message_id=sent or "made up")  # type: ignore[arg-type]
    assert given_id(message) == found


async def test_id_of_jetstream_will_do(scene: Scene) -> None:
    async with listening(scene.inbox()) as broker:
        await broker.publish("chair", "orders", headers={"Nats-Msg-Id": "n1"})
    assert await scene.receipts() == [("billing", "orders", "n1")]


async def test_functions_of_the_users_say_what_a_message_is_known_by(scene: Scene) -> None:
    inbox = scene.inbox(message_id=lambda message: message.headers["order"], source=lambda message: "the shop")
    async with listening(inbox) as broker:
        for _ in range(2):
            await broker.publish("chair", "orders", headers={"order": "7"})
    assert (await scene.receipts(), scene.duplicates) == ([("billing", "the shop", "7")], 1)


def test_source_is_the_channel_of_each_broker() -> None:
    nats, rabbit, redis, kafka = NatsBroker(), RabbitBroker(), RedisBroker(), KafkaBroker()
    found = [
        source_of(subscriber, None)
        for subscriber in (
            nats.subscriber("shop.*"),
            rabbit.subscriber("a queue", "an exchange"),
            redis.subscriber("a channel"),
            redis.subscriber(list="a list"),
            redis.subscriber(stream=StreamSub("a stream", group="g", consumer="c")),
            kafka.subscriber("a topic", group_id="g"),
        )
    ]
    assert found == ["shop.*", "a queue", "a channel", "a list", "a stream", "a topic"]

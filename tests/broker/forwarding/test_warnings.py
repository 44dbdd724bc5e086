"""Who forwards through a publisher that may lose the message is told so, at the line of the handler."""

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.confluent import KafkaRouter as ConfluentRouter
from faststream.kafka import KafkaBroker, KafkaRouter
from faststream.nats import JStream, NatsBroker, NatsRouter
from faststream.rabbit import Channel, RabbitBroker, RabbitRouter
from faststream.redis import RedisBroker, RedisRouter

from faststream_outbox import OutboxBroker
from faststream_outbox.errors import OutboxWarning
from tests.broker.effects import EffectsShop
from tests.cases import case

Forwarded = Callable[[], Any]

RETURNS = Channel(on_return_raises=True)
LOSING: dict[str, tuple[Forwarded, str]] = {
    "core NATS": (lambda: NatsBroker().publisher("orders"), 'publisher(…, stream="orders")'),
    "RabbitMQ without an error for what is returned": (
        lambda: RabbitBroker().publisher("orders", persist=True),
        "Channel(on_return_raises=True)",
    ),
    "RabbitMQ without confirms": (
        lambda: RabbitBroker(default_channel=Channel(publisher_confirms=False)).publisher("orders", persist=True),
        "publisher_confirms=False confirms nothing",
    ),
    "RabbitMQ, not mandatory": (
        lambda: RabbitBroker(default_channel=RETURNS).publisher("orders", persist=True, mandatory=False),
        "a message that no queue takes is dropped",
    ),
    "RabbitMQ, in memory": (lambda: RabbitBroker(default_channel=RETURNS).publisher("orders"), "persist=True"),
    "Kafka": (lambda: KafkaBroker(acks=0).publisher("orders"), 'acks="all"'),
    "Confluent": (lambda: ConfluentBroker(acks=0).publisher("orders"), 'acks="all"'),
    "Redis, a channel": (lambda: RedisBroker().publisher("orders"), "publisher(stream=…)"),
}

KEEPING: dict[str, Forwarded] = {
    "JetStream": lambda: NatsBroker().publisher("orders", stream="shop"),
    "JetStream, declared elsewhere": lambda: NatsBroker().publisher("orders", stream=JStream("shop", declare=False)),
    "RabbitMQ": lambda: RabbitBroker(default_channel=RETURNS).publisher("orders", persist=True),
    "Kafka": lambda: KafkaBroker().publisher("orders"),
    "Confluent": lambda: ConfluentBroker().publisher("orders"),
    "Redis, a stream": lambda: RedisBroker().publisher(stream="orders"),
    "Redis, a list": lambda: RedisBroker().publisher(list="orders"),
}


def another(shop: EffectsShop) -> OutboxBroker:
    return OutboxBroker(shop.engine, outbox_table=shop.outbox, dlq_table=None, logger=None)


def forward(broker: OutboxBroker, publisher: Any) -> Callable[..., Any]:
    async def hand_over(number: int) -> int:
        return number

    handler = broker.subscriber("orders")(hand_over)
    publisher(handler)
    return hand_over


async def warnings_of_start(broker: OutboxBroker) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await broker.start()
    await broker.stop()
    return caught


async def test_a_publisher_that_loses_messages_is_named_at_the_start(shop: EffectsShop) -> None:
    for name, (make, fix) in LOSING.items():
        with case(name):
            broker = another(shop)
            handler = forward(broker, make())
            (warning,) = await warnings_of_start(broker)
            text = str(warning.message)
            assert text.startswith("hand_over forwards to another broker and may lose messages: ")
            assert fix in text
            assert (warning.filename, warning.lineno) == (__file__, inspect.getsourcelines(handler)[1])


async def test_a_publisher_that_waits_is_fine(shop: EffectsShop) -> None:
    for name, make in KEEPING.items():
        with case(name):
            broker = another(shop)
            forward(broker, make())
            assert await warnings_of_start(broker) == []


async def test_a_policy_that_forgets_failures_is_named(shop: EffectsShop) -> None:
    @KEEPING["JetStream"]()
    @shop.broker.subscriber("orders", ack_policy=AckPolicy.ACK)
    async def hand_over(number: int) -> int:
        return number

    with pytest.warns(OutboxWarning, match=r"AckPolicy\.ACK deletes the message although publishing failed"):
        await shop.broker.start()


async def test_a_publisher_of_this_or_another_outbox_is_fine(shop: EffectsShop) -> None:
    forward(shop.broker, another(shop).publisher("letters"))
    assert await warnings_of_start(shop.broker) == []
    await shop.deliver(1)
    await shop.becomes(messages={"letters": [b"1"]})


async def test_a_router_of_the_other_broker_is_looked_through(shop: EffectsShop) -> None:
    nats, router = NatsBroker(), NatsRouter(prefix="shop.")
    forward(shop.broker, router.publisher("orders"))
    nats.include_router(router)
    (warning,) = await warnings_of_start(shop.broker)
    assert "core NATS confirms nothing" in str(warning.message)
    (subscriber,) = shop.broker.subscribers
    assert not subscriber.can_forward  # type: ignore[attr-defined]


async def test_a_router_without_a_broker_does_not_keep_the_outbox_from_starting(shop: EffectsShop) -> None:
    routers: list[Any] = [NatsRouter, RabbitRouter, KafkaRouter, ConfluentRouter, RedisRouter]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OutboxWarning)
        for router in routers:
            broker = another(shop)
            forward(broker, router().publisher("orders"))
            with case(router):
                await broker.start()
                assert broker.running
            await broker.stop()


async def test_a_restart_does_not_repeat_the_warning(shop: EffectsShop) -> None:
    forward(shop.broker, NatsBroker().publisher("orders"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(2):
            await shop.broker.start()
            await shop.broker.stop()
    assert len(caught) == 1

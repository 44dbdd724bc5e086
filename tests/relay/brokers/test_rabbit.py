"""Relay to RabbitMQ: confirmed and persistent, properties in their place, and what no queue takes is a dead letter."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from aiormq.exceptions import ChannelNotFoundEntity
from faststream import FastStream
from faststream.rabbit import ExchangeType, RabbitBroker, RabbitExchange, RabbitQueue
from faststream.rabbit.annotations import RabbitMessage

from faststream_outbox._internal.relay.brokers.rabbit import REOPEN_SECONDS, RabbitTransport, Turns
from faststream_outbox._internal.relay.transport import SENT, Refused, RelayMessage
from faststream_outbox.events import Died
from tests.broker.topics.stage import Stage
from tests.relay.publishing import is_empty, own_id, publish, relaying
from tests.waiting import eventually


@pytest.fixture
async def rabbit(amqp: str) -> AsyncIterator[RabbitBroker]:
    rabbit = RabbitBroker(amqp, logger=None)
    yield rabbit
    await rabbit.stop()


@pytest.fixture
async def direct(amqp: str) -> AsyncIterator[RabbitBroker]:
    """A connection of the test's own."""
    direct = RabbitBroker(amqp, logger=None)
    await direct.start()
    yield direct
    await direct.stop()


@pytest.fixture
async def queue(direct: RabbitBroker) -> AsyncIterator[Any]:
    """A durable queue."""
    declared = await direct.declare_queue(RabbitQueue(f"outbox_test_{uuid4().hex}", durable=True))
    yield declared
    await declared.delete(if_unused=False, if_empty=False)


async def test_a_subscriber_sees_it_as_if_it_was_published_there(
    stage: Stage, rabbit: RabbitBroker, queue: Any
) -> None:
    stage.broker.relay("orders", to=rabbit.publisher(queue.name))

    @rabbit.subscriber(RabbitQueue(queue.name, durable=True))
    async def receive(body: dict[str, int], message: RabbitMessage) -> None:
        raw = message.raw_message
        stage.seen.append((body, message.message_id, message.correlation_id, message.headers))
        stage.seen.append((raw.body, raw.content_type, raw.delivery_mode.value))

    await publish(stage, {"id": 1}, correlation_id="cor-1", headers={"traceparent": "00-1-2-01", "tenant": 7})
    message_id = await own_id(stage)
    async with FastStream(stage.broker, rabbit, logger=None):
        seen = await stage.saw(2)
        await is_empty(stage)
    assert seen[0] == ({"id": 1}, message_id, "cor-1", {"traceparent": "00-1-2-01", "tenant": 7})
    assert seen[1] == (b'{"id":1}', "application/json", 2)


async def test_all_arrive_in_order_per_key(stage: Stage, rabbit: RabbitBroker, queue: Any) -> None:
    stage.broker.relay(topic="orders", group="billing", to=rabbit.publisher(queue.name))
    await stage.publish(*range(100), keys=[str(number % 7) for number in range(100)])
    async with FastStream(stage.broker, rabbit, logger=None):
        await stage.caught_up()
    bodies = [int((await queue.get(no_ack=True)).body) for _ in range(100)]
    for key in range(7):
        assert [body for body in bodies if body % 7 == key] == [*range(key, 100, 7)]


async def test_what_no_queue_takes_is_a_dead_letter(stage: Stage, rabbit: RabbitBroker, queue: Any) -> None:
    async with relaying(stage, rabbit.publisher("nobody reads this"), rabbit, 1):
        died = await stage.witness.wait(Died)
    assert "no queue takes it" in str(died.error)


async def test_an_unknown_exchange_refuses_its_own_messages_only(
    stage: Stage, rabbit: RabbitBroker, direct: RabbitBroker, queue: Any
) -> None:
    stage.broker.relay(group="out", to={"amqp": rabbit})
    exchange = f"outbox_test_{uuid4().hex}"
    for number in range(10):
        await stage.publish(number, topic=f"amqp://{exchange}", key=f"order.{number}")
    await stage.publish(10, topic="amqp://no-such-exchange", key="order.10")
    await direct.declare_exchange(RabbitExchange(exchange, type=ExchangeType.TOPIC, auto_delete=True))
    await queue.bind(exchange, routing_key="order.*")
    found: set[int] = set()

    async def all_others_arrived() -> bool:
        message = await queue.get(no_ack=True, fail=False)
        if message is not None:
            found.add(int(message.body))
        return found == {*range(10)}

    async with FastStream(stage.broker, rabbit, logger=None):
        died = await stage.witness.wait(Died)
        await eventually(all_others_arrived)
    assert "no exchange 'no-such-exchange'" in str(died.error)
    assert len(stage.witness.of(Died)) == 1


async def test_the_default_exchange_has_an_empty_name(stage: Stage, rabbit: RabbitBroker, queue: Any) -> None:
    stage.broker.relay(group="out", to={"amqp": rabbit})
    await stage.publish(1, topic="amqp:///", key=queue.name)
    async with FastStream(stage.broker, rabbit, logger=None):
        await stage.caught_up("out", "amqp://")
        assert (await queue.get(no_ack=True)).body == b"1"


class ClosingChannel:
    """A broker whose channel is closed by a message, and for a moment fails with the same error whoever comes then."""

    def __init__(self) -> None:
        self._closed_by: Exception | None = None

    async def publish(self, body: bytes, **_: Any) -> None:
        if body == b"guilty" and self._closed_by is None:
            self._closed_by = ChannelNotFoundEntity()
            asyncio.get_running_loop().call_later(REOPEN_SECONDS / 2, self._reopen)
        if self._closed_by is not None:
            raise self._closed_by

    def _reopen(self) -> None:
        self._closed_by = None


async def test_who_comes_while_a_channel_closes_is_not_to_blame() -> None:
    transport = RabbitTransport(ClosingChannel(), None, None)
    bodies = (b"one", b"guilty", b"two")
    now = datetime.now(UTC)
    messages = [RelayMessage(id=str(body), body=body, uri="orders", created_at=now) for body in bodies]
    first, second, third = await transport.send(messages)
    assert (first, third) == (SENT, SENT)
    assert isinstance(second, Refused)


async def test_who_is_alone_waits_for_who_runs_and_lets_nobody_in() -> None:
    turns, done = Turns(), asyncio.Event()
    seen: list[str] = []

    async def run(name: str) -> None:
        async with turns.together():
            seen.append(name)
            await done.wait()

    async def run_alone() -> None:
        async with turns.alone():
            seen.append("alone")
            # Whoever came meanwhile would have had its turn by now.
            for _ in range(10):
                await asyncio.sleep(0)
            seen.append("no longer")

    first = [asyncio.create_task(run("one")), asyncio.create_task(run("two"))]
    await eventually(lambda: seen == ["one", "two"])
    then = [asyncio.create_task(run_alone()), asyncio.create_task(run("later"))]
    for _ in range(10):
        await asyncio.sleep(0)
    assert seen == ["one", "two"]
    done.set()
    await asyncio.gather(*first, *then)
    assert seen == ["one", "two", "alone", "no longer", "later"]


async def test_who_is_cancelled_stands_in_nobodys_way() -> None:
    turns = Turns()

    async def run() -> None:
        async with turns.together():
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    async with asyncio.timeout(10), turns.alone():
        pass

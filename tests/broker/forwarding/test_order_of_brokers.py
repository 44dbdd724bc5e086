"""The other broker may be started and stopped before or after the outbox: no attempt is lost to that."""

import asyncio
from typing import Any

import pytest
from faststream import FastStream
from faststream.nats import NatsBroker

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.outcomes.retry import NoRetry
from tests.broker.effects import EffectsShop
from tests.broker.topics.stage import Stage
from tests.servers.nats_server import NatsServer
from tests.waiting import eventually


class Handler:
    """Hands over to NATS what it gets; whatever fails is a dead letter at once."""

    def __init__(self, nats: NatsBroker, subscriber: Any) -> None:
        self.seen: list[Any] = []
        self.entered, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

        @nats.publisher("shop.orders", stream="shop", timeout=30)
        @subscriber
        async def hand_over(numbers: Any) -> Any:
            self.seen.append(numbers)
            self.entered.set()
            await self.go_on.wait()
            return numbers


def forward(broker: OutboxBroker, nats: NatsBroker, **options: Any) -> Handler:
    where = {} if "topic" in options else {"queues": "orders"}
    return Handler(nats, broker.subscriber(**where, retry_strategy=NoRetry(), **options))


async def stop_while_it_runs(app: FastStream, nats: NatsBroker, handler: Handler) -> None:
    """Stop both brokers, and let the handler end when there is no connection any more."""
    await handler.entered.wait()
    stopping = asyncio.create_task(app.stop())
    await eventually(lambda: nats._connection is None, timeout=30)
    handler.go_on.set()
    await stopping


async def arrived(nats_server: NatsServer, *bodies: bytes) -> None:
    async def all_arrived() -> bool:
        return [body for body, _ in await nats_server.stored("shop")] == list(bodies)

    await eventually(all_arrived, timeout=30)


async def test_nothing_is_claimed_before_the_other_broker_runs(
    shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer
) -> None:
    others: list[int] = []
    handler = forward(shop.broker, nats)

    @shop.broker.subscriber("others")
    async def handle(number: int) -> None:
        others.append(number)

    await shop.publish(1, 2, 3)
    await shop.broker.start()
    await shop.publish(4, queue="others")
    await shop.becomes(messages={"orders": [b"1", b"2", b"3"]})
    assert (handler.seen, others) == ([], [4])
    await nats.start()
    await arrived(nats_server, b"1", b"2", b"3")
    await shop.becomes()


async def test_a_topic_is_not_read_before_the_other_broker_runs(
    stage: Stage, nats: NatsBroker, nats_server: NatsServer
) -> None:
    handler = forward(stage.broker, nats, topic="orders", group="billing")
    await stage.publish(1, 2, 3)
    await stage.broker.start()
    await stage.broker.stop()
    await stage.broker.start()
    assert handler.seen == []
    await nats.start()
    await arrived(nats_server, b"1", b"2", b"3")
    assert handler.seen == [1, 2, 3]
    await stage.broker.stop()
    assert not await stage.deferred()


@pytest.mark.parametrize("outbox_first", [True, False])
async def test_first_messages_arrive_whatever_the_order(
    shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer, outbox_first: bool
) -> None:
    forward(shop.broker, nats)
    await shop.publish(1, 2, 3)
    app = FastStream(*((shop.broker, nats) if outbox_first else (nats, shop.broker)), logger=None)
    await app.start()
    await arrived(nats_server, b"1", b"2", b"3")
    await shop.becomes()
    await app.stop()


async def test_what_runs_when_the_other_broker_stops_comes_again_uncounted(
    shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer
) -> None:
    handler = forward(shop.broker, nats)
    handler.go_on.clear()
    app = FastStream(nats, shop.broker, logger=None)
    await app.start()
    await shop.publish(1)
    await stop_while_it_runs(app, nats, handler)
    (row,) = await shop.sql(f"select attempts_count, deliveries_count, acquired_token from {shop.outbox.name}")
    assert dict(row) == {"attempts_count": 0, "deliveries_count": 0, "acquired_token": None}
    await app.start()
    await arrived(nats_server, b"1")
    await shop.becomes()
    await app.stop()


@pytest.mark.parametrize("batch", [False, True])
async def test_what_a_topic_delivers_when_the_other_broker_stops_comes_again_uncounted(
    stage: Stage, nats: NatsBroker, nats_server: NatsServer, batch: bool
) -> None:
    handler = forward(stage.broker, nats, topic="orders", group="billing", batch=batch)
    handler.go_on.clear()
    app = FastStream(nats, stage.broker, logger=None)
    await app.start()
    await stage.publish(1)
    await stop_while_it_runs(app, nats, handler)
    assert not await stage.deferred()
    await app.start()
    await arrived(nats_server, b"[1]" if batch else b"1")
    await app.stop()


@pytest.mark.parametrize("batch", [False, True])
async def test_messages_wait_while_the_other_broker_is_stopped(
    shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer, batch: bool
) -> None:
    handler = forward(shop.broker, nats, batch=batch)
    app = FastStream(nats, shop.broker, logger=None)
    await app.start()
    await nats.stop()
    await shop.publish(1)

    async def it_is_claimed() -> Any:
        return await shop.sql(f"select 1 from {shop.outbox.name} where acquired_token is not null")

    await eventually(it_is_claimed, timeout=30)
    assert handler.seen == []
    await nats.start()
    await arrived(nats_server, b"[1]" if batch else b"1")
    await shop.becomes()
    await app.stop()


async def test_a_handler_that_publishes_by_itself_finds_a_broker_that_was_connected_first(
    shop: EffectsShop, nats: NatsBroker, nats_server: NatsServer
) -> None:
    await nats_server.make_stream("shop", "shop.*")
    app = FastStream(shop.broker, nats, logger=None)

    @app.on_startup
    async def connect() -> None:
        await nats.connect()

    @shop.broker.subscriber("orders", retry_strategy=NoRetry())
    async def hand_over(number: int) -> None:
        await nats.publish(number, "shop.orders", stream="shop", timeout=30)

    await shop.publish(1)
    await app.start()
    await arrived(nats_server, b"1")
    await shop.becomes()
    await app.stop()


async def test_stop_does_not_wait_for_a_broker_that_never_started(shop: EffectsShop, nats: NatsBroker) -> None:
    forward(shop.broker, nats)
    await shop.publish(1)
    for _ in range(2):
        await shop.broker.start()
        await shop.broker.stop()
    assert (await shop.state())["messages"] == {"orders": [b"1"]}


async def test_an_error_says_what_to_start(
    shop: EffectsShop, nats: NatsBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faststream_outbox._internal.relay.gate.PATIENCE_SECONDS", 0.05)
    said: list[str] = []
    forward(shop.broker, nats)
    (subscriber,) = shop.broker.subscribers
    monkeypatch.setattr(subscriber, "_log", lambda level, message, context: said.append(message))
    await shop.broker.start()
    await eventually(lambda: said)
    assert "It forwards to NatsBroker, which was not started" in said[0]
    assert "FastStream(outbox_broker, other_broker)" in said[0]

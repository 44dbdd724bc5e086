"""Redelivery by real brokers: NATS with JetStream, a stream of Redis, RabbitMQ, and our own outbox."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from faststream import AckPolicy
from faststream.nats import ConsumerConfig, JStream, NatsBroker
from faststream.rabbit import RabbitBroker, RabbitQueue
from faststream.redis import RedisBroker, StreamSub
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import ConstantRetry, OutboxBroker, make_outbox_table
from faststream_outbox.annotations import InboxSession
from tests.inbox.conftest import Scene
from tests.servers.nats_server import NatsServer
from tests.servers.redis_server import RedisServer
from tests.tables import existing
from tests.waiting import eventually


@pytest.fixture
async def nats(nats_server: NatsServer, scene: Scene) -> AsyncIterator[NatsBroker]:
    await nats_server.make_stream("shop", "shop.>")
    broker = NatsBroker(nats_server.url, logger=None, middlewares=[scene.inbox().middleware])  # type: ignore[arg-type]
    yield broker
    await broker.stop()


def failing(scene: Scene, times: int = 1) -> Callable[[str, InboxSession], Awaitable[None]]:
    """A handler that fails so often."""
    failures = [ValueError("not yet")] * times

    async def bill(order: str, session: InboxSession) -> None:
        await scene.write(session, order)
        if failures:
            raise failures.pop()

    return bill


async def test_jetstream_delivers_again_what_was_committed_and_not_acknowledged(scene: Scene, nats: NatsBroker) -> None:
    runs: list[str] = []

    @nats.subscriber(
        "shop.orders",
        stream=JStream("shop", declare=False),
        durable="billing",
        config=ConsumerConfig(ack_wait=0.3),
        ack_policy=AckPolicy.MANUAL,
    )
    async def bill(order: str, session: InboxSession) -> None:
        # Never acknowledged by the handler: as if the process had died after the commit.
        runs.append(order)
        await scene.write(session, order)

    await nats.start()
    for order in ("chair", "table"):
        await nats.publish(order, "shop.orders", headers={"message_id": order}, stream="shop")
    await eventually(lambda: scene.duplicates >= 2)
    assert sorted(runs) == ["chair", "table"]
    assert await scene.written() == ["chair", "table"]
    (subscriber,) = nats.subscribers
    context = nats.config.connection_state.stream  # type: ignore[attr-defined]

    async def all_acknowledged() -> bool:
        return bool((await context.consumer_info("shop", "billing")).num_ack_pending == 0)

    await eventually(all_acknowledged)
    assert subscriber.ack_policy is AckPolicy.MANUAL


async def test_jetstream_delivers_again_while_the_first_delivery_is_being_handled(
    scene: Scene, nats: NatsBroker
) -> None:
    go_on, runs = asyncio.Event(), 0

    @nats.subscriber(
        "shop.orders",
        stream=JStream("shop", declare=False),
        durable="billing",
        max_workers=4,
        config=ConsumerConfig(ack_wait=0.2),
    )
    async def bill(order: str, session: InboxSession) -> None:
        nonlocal runs
        runs += 1
        await scene.write(session, order)
        await go_on.wait()

    await nats.start()
    await nats.publish("chair", "shop.orders", headers={"Nats-Msg-Id": "m1"}, stream="shop")

    async def waits() -> bool:
        async with scene.engine.connect() as connection:
            asked = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            return bool((await connection.exec_driver_sql(asked)).scalar())

    await eventually(waits)
    go_on.set()
    await eventually(lambda: scene.duplicates >= 1)
    assert (runs, await scene.written()) == (1, ["chair"])


async def test_failed_message_of_jetstream_comes_again_and_takes_effect_once(scene: Scene, nats: NatsBroker) -> None:
    subscribe = nats.subscriber(
        "shop.orders", stream=JStream("shop", declare=False), durable="billing", ack_policy=AckPolicy.NACK_ON_ERROR
    )
    subscribe(failing(scene, times=2))

    await nats.start()
    await nats.publish("chair", "shop.orders", headers={"message_id": "m1"}, stream="shop")
    await eventually(scene.written)
    assert await scene.written() == ["chair"]


async def test_stream_of_redis(scene: Scene, redis_server: RedisServer) -> None:
    middlewares: Any = [scene.inbox().middleware]
    broker = RedisBroker(redis_server.url, logger=None, middlewares=middlewares)
    stream = StreamSub("orders", group="billing", consumer="a", polling_interval=10, min_idle_time=50)
    broker.subscriber(stream=stream)(failing(scene))

    async with broker:
        await broker.connect()
        # Whoever crashed before it acknowledged left its message behind: pending, to be claimed.
        client = broker._connection
        await client.xgroup_create("orders", "billing", mkstream=True)
        for _ in range(2):
            await broker.publish("chair", stream="orders", headers={"message_id": "m1"})
        await client.xreadgroup("billing", "crashed", {"orders": ">"})
        await broker.start()
        await eventually(lambda: scene.duplicates)
    assert await scene.written() == ["chair"]


@pytest.mark.slow
async def test_rabbitmq(scene: Scene, amqp: str) -> None:
    queue = RabbitQueue(f"inbox-{uuid4()}", auto_delete=True)
    middlewares: Any = [scene.inbox().middleware]
    broker = RabbitBroker(amqp, logger=None, middlewares=middlewares, ack_policy=AckPolicy.NACK_ON_ERROR)
    broker.subscriber(queue)(failing(scene))

    async with broker:
        await broker.start()
        for _ in range(2):
            await broker.publish("chair", queue, message_id="m1")
        await eventually(lambda: scene.duplicates)
    assert await scene.written() == ["chair"]
    assert await scene.receipts() == [("billing", queue.name, "m1")]


async def test_our_own_outbox(scene: Scene, engine: AsyncEngine, builder: Engine) -> None:
    """One message, delivered again because its handler failed once, and published again under the same id."""
    with existing(make_outbox_table(scene.table.metadata), builder) as table:
        broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, middlewares=[scene.inbox().middleware])
        broker.subscriber("orders", retry_strategy=ConstantRetry(delay_seconds=0.01))(failing(scene))
        number = uuid4()
        async with broker:
            await broker.start()
            for _ in range(2):
                async with AsyncSession(engine) as session, session.begin():
                    await broker.publish("chair", queue="orders", session=session, message_id=number)
                await eventually(scene.written)
            await eventually(lambda: scene.duplicates)
        assert await scene.receipts() == [("billing", "orders", str(number))]
        assert await scene.written() == ["chair"]

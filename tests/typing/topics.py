"""The types that a user of topics sees; checked by mypy and basedpyright, not run."""

from typing import Annotated, Any, assert_type
from uuid import uuid4

from faststream import AckPolicy
from pydantic import BaseModel
from sqlalchemy import Engine, MetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from faststream_outbox import (
    ConstantRetry,
    OutboxBroker,
    OutboxPublisher,
    OutboxResponse,
    OutboxRoute,
    OutboxRoutePublisher,
    OutboxRouter,
    TestOutboxBroker,
    make_outbox_table,
)
from faststream_outbox.annotations import Context, OutboxBatchMessage, OutboxMessage, OutboxSession
from faststream_outbox.annotations import OutboxBroker as Broker
from faststream_outbox.broker import OutboxSubscriber
from faststream_outbox.fastapi import OutboxRouter as FastAPIRouter
from faststream_outbox.log import Delivery, LogClient, Outbox, make_log_tables
from faststream_outbox.log import OutboxMessage as LogMessage
from faststream_outbox.queue import Claim
from faststream_outbox.testing import fake_session


class Order(BaseModel):
    id: int


metadata = MetaData()
outbox_table = make_outbox_table(metadata)
log_tables = make_log_tables(metadata, "outbox_log")
engine = create_async_engine("postgresql+asyncpg://localhost/shop")
broker = OutboxBroker(engine, outbox_table=outbox_table, log_tables=log_tables)
subscriber = broker.subscriber(
    topic="orders",
    group="billing",
    max_workers=4,
    retry_strategy=ConstantRetry(delay_seconds=1),
    lease_ttl_seconds=15.0,
    on_dead="block",
    transactional=True,
    ack_policy=AckPolicy.NACK_ON_ERROR,
    propagate_inbound_headers=True,
)
assert_type(subscriber, OutboxSubscriber)
assert_type(subscriber.group, str | None)
assert_type(subscriber.queues, tuple[str, ...])
publisher = broker.publisher(topic="bills", headers={"a": "1"}, key="k", schema=Order)
assert_type(publisher, OutboxPublisher)
assert_type(publisher.is_topic, bool)


@publisher
@subscriber
async def handle(
    order: Order,
    message: OutboxMessage,
    session: OutboxSession,
    outbox: Broker,
    tenant: Annotated[str, Context("message.headers.tenant", default="")],
) -> Order:
    assert_type(message.raw_message, Claim | Delivery)
    assert_type(message.raw_message.queue, str)
    assert_type(message.raw_message.key, str | None)
    assert_type(message.raw_message.id, int)
    assert_type(message.raw_message.payload, bytes)
    assert_type(message.raw_message.headers, dict[str, Any])
    assert_type(message.raw_message.deliveries_count, int)
    assert_type(session, AsyncSession)
    assert_type(await outbox.publish(order, topic="mails", key=tenant), int | None)
    await message.nack(delay=1.5)
    await message.snooze(3600)
    await message.reject()
    await message.ack()
    return order


@broker.subscriber(topic="orders", group="sums", batch=True, batch_size=10)
async def handle_batch(orders: list[Order], batch: OutboxBatchMessage) -> OutboxResponse:
    for message in batch.messages:
        await message.ack()
    return OutboxResponse(len(orders), topic="sums", key="k", headers={"a": "1"})


async def collect(order: Order) -> int:
    return order.id


router = OutboxRouter(
    prefix="shop.",
    handlers=[
        OutboxRoute(collect, topic="orders", group="all", publishers=[OutboxRoutePublisher(topic="sums", key="k")])
    ],
)
broker.include_router(router, prefix="eu.")


@router.publisher(topic="archive")
@router.subscriber(topic="returns", group="billing")
async def from_router(body: bytes) -> bytes:
    return body


web = FastAPIRouter(engine, outbox_table=outbox_table, log_tables=log_tables)


@web.subscriber(topic="orders", group="web")
@web.publisher(topic="seen")
async def from_web(order: Order) -> Order:
    return order


async def publish(session: AsyncSession, connection: AsyncConnection) -> None:
    position = await broker.publish(
        Order(id=1),
        topic="orders",
        key="order-1",
        session=session,
        headers={"tenant": "a"},
        correlation_id="c",
        reply_to="answers",
        message_id=uuid4(),
    )
    assert_type(position, int | None)
    assert_type(await broker.publish("text", topic="orders", session=connection), int | None)
    assert_type(await broker.publish_batch(1, "x", topic="orders", session=session, keys=["a", None]), list[int])
    assert_type(await publisher.publish(Order(id=1), session=session, key="k"), int | None)


def publish_without_a_loop(sync_engine: Engine) -> None:
    with Session(sync_engine) as session, session.begin():
        assert_type(broker.publish_sync({"id": 1}, topic="orders", key="k", session=session), int | None)


async def live() -> None:
    assert_type(broker.log, LogClient)
    outbox = Outbox(engine, tables=log_tables)
    await outbox.cleanup()
    assert_type(await from_router(b""), bytes)
    async with broker.subscriber(topic="dynamic", group="billing", persistent=False) as dynamic:
        assert_type(dynamic, OutboxSubscriber)


async def under_test() -> None:
    test = TestOutboxBroker(broker)
    async with test as tested:
        assert_type(tested, OutboxBroker)
        await tested.publish(1, topic="orders", session=fake_session())
        assert test.fake_client is not None
        assert_type(test.fake_client.messages, list[LogMessage])

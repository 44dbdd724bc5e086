"""The types that a user of the broker sees, of queues, topics and tests; checked by mypy and basedpyright, not run."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, assert_type
from uuid import uuid4

from faststream import AckPolicy, Depends, FastStream
from faststream.asgi import AsgiFastStream, make_ping_asgi
from pydantic import BaseModel
from sqlalchemy import Engine, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from faststream_outbox import (
    ConstantRetry,
    ExponentialRetry,
    LinearRetry,
    MetricsRecorder,
    NoRetry,
    OutboxBroker,
    OutboxPublisher,
    OutboxResponse,
    OutboxRoute,
    OutboxRoutePublisher,
    OutboxRouter,
    RetryStrategyProto,
    TestOutboxBroker,
    TimerConflict,
    make_dlq_table,
    make_outbox_table,
    outbox_autovacuum_ddl,
)
from faststream_outbox.annotations import (
    Context,
    ContextRepo,
    Logger,
    OutboxBatchMessage,
    OutboxClient,
    OutboxMessage,
    OutboxProducer,
    OutboxSession,
)
from faststream_outbox.annotations import OutboxBroker as Broker
from faststream_outbox.broker import OutboxSubscriber
from faststream_outbox.fastapi import OutboxRouter as FastAPIRouter
from faststream_outbox.log import Delivery, LogClient, Outbox, make_log_tables
from faststream_outbox.log import OutboxMessage as LogMessage
from faststream_outbox.overview import Unprocessed
from faststream_outbox.queue import Claim
from faststream_outbox.testing import fake_session
from faststream_outbox.testing.postgres import PostgresServer


class Order(BaseModel):
    id: int


def recorder(event: str, fields: Any) -> None:
    del event, fields


class OwnRetry:
    def get_next_attempt_delay(
        self,
        *,
        first_attempt_at: datetime,
        last_attempt_at: datetime,
        attempts_count: int,
        exception: BaseException | None = None,
    ) -> float | None:
        del first_attempt_at, last_attempt_at, attempts_count, exception
        return None


metadata = MetaData()
outbox_table = make_outbox_table(metadata, table_name="outbox")
dlq_table = make_dlq_table(metadata)
log_tables = make_log_tables(metadata, "outbox_log")
assert_type(outbox_table, Table)
assert_type(outbox_autovacuum_ddl("outbox"), str)
engine = create_async_engine("postgresql+asyncpg://localhost/shop")
recording: MetricsRecorder = recorder
broker = OutboxBroker(
    engine,
    outbox_table=outbox_table,
    dlq_table=dlq_table,
    log_tables=log_tables,
    notify="after_commit",
    metrics_recorder=recording,
    last_exception_renderer=repr,
    graceful_timeout=None,
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
app = FastStream(broker)
web = AsgiFastStream(broker, asgi_routes=[("/health", make_ping_asgi(broker, timeout=5.0))])
strategies: Sequence[RetryStrategyProto] = [
    NoRetry(),
    ConstantRetry(delay_seconds=1),
    LinearRetry(initial_delay_seconds=1, step_seconds=1),
    ExponentialRetry(initial_delay_seconds=1, max_delay_seconds=60, jitter_factor=0.1),
    OwnRetry(),
]
conflict: TimerConflict = "replace"


async def opened() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


async def hook(claim: Claim) -> None:
    assert_type(claim.queue, str)
    assert_type(claim.payload, bytes)


subscriber = broker.subscriber(
    ["orders", "returns"],
    max_workers=4,
    retry_strategy=OwnRetry(),
    on_dead="block",
    on_lease_lost="cancel",
    on_undecided="release",
    on_terminal_failure=hook,
    transactional=True,
)
assert_type(subscriber, OutboxSubscriber)
assert_type(subscriber.queues, tuple[str, ...])
publisher = broker.publisher("bills", headers={"a": "1"}, key="k", schema=Order)
assert_type(publisher, OutboxPublisher)
topic_subscriber = broker.subscriber(
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
assert_type(topic_subscriber, OutboxSubscriber)
assert_type(topic_subscriber.group, str | None)
assert_type(topic_subscriber.queues, tuple[str, ...])
topic_publisher = broker.publisher(topic="bills", headers={"a": "1"}, key="k", schema=Order)
assert_type(topic_publisher, OutboxPublisher)
assert_type(topic_publisher.is_topic, bool)


@topic_publisher
@topic_subscriber
@publisher
@subscriber
async def handle(
    order: Order,
    message: OutboxMessage,
    session: OutboxSession,
    outbox: Broker,
    client: OutboxClient,
    producer: OutboxProducer,
    logger: Logger,
    context: ContextRepo,
    tenant: Annotated[str, Context("message.headers.tenant", default="")],
) -> Order:
    assert_type(message.correlation_id, str)
    assert_type(message.raw_message, Claim | Delivery)
    assert_type(message.raw_message.queue, str)
    assert_type(message.raw_message.key, str | None)
    assert_type(message.raw_message.id, int)
    assert_type(message.raw_message.payload, bytes)
    assert_type(message.raw_message.headers, dict[str, Any])
    assert_type(message.raw_message.deliveries_count, int)
    assert_type(session, AsyncSession)
    assert_type(await outbox.publish(order, "mails"), int | None)
    assert_type(await outbox.publish(order, topic="mails", key=tenant), int | None)
    assert_type(client.is_healthy, bool)
    logger.info("%s %s %s %s", order.id, tenant, context, producer)
    await message.nack(delay=1.5)
    await message.snooze(3600)
    await message.reject()
    await message.ack()
    return order


@broker.subscriber("batches", batch=True, batch_size=10, batch_wait=0.5)
async def handle_batch(orders: list[Order], batch: OutboxBatchMessage) -> None:
    for message in batch.messages:
        await message.ack()
    assert_type(len(orders), int)


@broker.subscriber(topic="orders", group="sums", batch=True, batch_size=10)
async def handle_batch_of_topic(orders: list[Order], batch: OutboxBatchMessage) -> OutboxResponse:
    for message in batch.messages:
        await message.ack()
    return OutboxResponse(len(orders), topic="sums", key="k", headers={"a": "1"})


@broker.subscriber("chained")
async def chained(body: dict[str, int], session: Annotated[AsyncSession, Depends(opened)]) -> OutboxResponse:
    return OutboxResponse(
        body,
        queue="next",
        session=session,
        key="k",
        priority=1,
        activate_in=timedelta(minutes=1),
        timer_id="t",
        timer_conflict=conflict,
    )


async def call_handlers(session: AsyncSession) -> None:
    assert_type(await chained({"id": 1}, session), OutboxResponse)


async def collect(order: Order) -> int:
    return order.id


router = OutboxRouter(
    prefix="shop.",
    handlers=[
        OutboxRoute(handle_batch, "orders", publishers=[OutboxRoutePublisher("bills")], max_workers=2),
        OutboxRoute(collect, topic="orders", group="all", publishers=[OutboxRoutePublisher(topic="sums", key="k")]),
    ],
    ack_policy=AckPolicy.REJECT_ON_ERROR,
)
broker.include_router(router, prefix="eu.")
broker.include_routers(OutboxRouter(routers=[router]))


@router.subscriber("returns", ack_policy=AckPolicy.MANUAL)
async def from_router(body: bytes, message: OutboxMessage) -> None:
    del body
    await message.ack()


@router.publisher(topic="archive")
@router.subscriber(topic="returns", group="billing")
async def from_router_of_topic(body: bytes) -> bytes:
    return body


web_router = FastAPIRouter(engine, outbox_table=outbox_table, log_tables=log_tables)


@web_router.subscriber(topic="orders", group="web")
@web_router.publisher(topic="seen")
async def from_web(order: Order) -> Order:
    return order


async def publish(session: AsyncSession, connection: AsyncConnection) -> None:
    number = await broker.publish(
        Order(id=1),
        queue="orders",
        session=session,
        headers={"tenant": "a"},
        correlation_id="c",
        reply_to="answers",
        key="k",
        priority=5,
        activate_at=datetime.now(UTC),
        message_id=uuid4(),
    )
    assert_type(number, int | None)
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
    assert_type(await broker.publish("text", "orders", session=connection), int | None)
    assert_type(await broker.publish("text", topic="orders", session=connection), int | None)
    assert_type(await broker.publish_batch(1, "x", topic="orders", session=session, keys=["a", None]), list[int])
    assert_type(await broker.publish_batch(1, 2.5, "x", None, queue="orders", session=session, keys=["a"]), list[int])
    assert_type(await publisher.publish(Order(id=1), session=session), int | None)
    assert_type(await topic_publisher.publish(Order(id=1), session=session, key="k"), int | None)
    assert_type(await broker.cancel_timer(queue="orders", timer_id="t", session=session), bool)
    assert_type(await broker.fetch_unprocessed(session=session, queue="orders", limit=5), list[Unprocessed])


def publish_without_a_loop(sync_engine: Engine) -> None:
    with Session(sync_engine) as session, session.begin():
        assert_type(broker.publish_sync({"id": 1}, "orders", session=session), int | None)
        assert_type(broker.publish_sync({"id": 1}, topic="orders", key="k", session=session), int | None)
        assert_type(broker.cancel_timer_sync(queue="orders", timer_id="t", session=session), bool)
    with sync_engine.begin() as connection:
        broker.publish_sync([1, 2], "orders", session=connection)


async def live() -> None:
    await broker.start()
    await broker.validate_schema(check_autovacuum=True)
    assert_type(await broker.ping(timeout=1.0), bool)
    assert_type(broker.client.engine, AsyncEngine)
    async with broker.subscriber("dynamic", persistent=False) as dynamic:
        assert_type(dynamic, OutboxSubscriber)
    async with broker.subscriber(topic="dynamic", group="billing", persistent=False) as dynamic:
        assert_type(dynamic, OutboxSubscriber)
    assert_type(broker.log, LogClient)
    await Outbox(engine, tables=log_tables).cleanup()
    assert_type(await from_router_of_topic(b""), bytes)
    await broker.stop()


async def under_test(session: AsyncSession) -> None:
    async with TestOutboxBroker(broker, run_loops=True) as tested:
        assert_type(tested, OutboxBroker)
        await tested.publish(1, "orders", session=session)
        await tested.publish(1, topic="orders", session=fake_session())
        handle.mock.assert_called_once_with({"id": 1})
        await handle_batch.wait_call(1.0)
    test = TestOutboxBroker(broker, OutboxBroker(outbox_table=outbox_table))
    async with test as brokers:
        assert_type(brokers, tuple[OutboxBroker, ...])
        test.advance(timedelta(hours=1))
        assert_type(test.feed("orders", b"{}"), int | None)
        assert test.fake_client is not None
        assert_type(test.fake_client.messages, list[LogMessage])


def private_server() -> None:
    with PostgresServer.start(version=16, settings={"fsync": "off"}) as server:
        assert_type(server, PostgresServer)
        assert_type(server.dsn(), str)
        assert_type(server.pid, int)
        assert_type(server.run("psql", "-c", "SELECT 1"), str)

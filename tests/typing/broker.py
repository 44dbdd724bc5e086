"""The types that a user of the broker sees; checked by mypy and basedpyright, not run."""

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
from faststream_outbox.log import Delivery
from faststream_outbox.overview import Unprocessed
from faststream_outbox.queue import Claim


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
assert_type(outbox_table, Table)
assert_type(outbox_autovacuum_ddl("outbox"), str)
engine = create_async_engine("postgresql+asyncpg://localhost/shop")
recording: MetricsRecorder = recorder
broker = OutboxBroker(
    engine,
    outbox_table=outbox_table,
    dlq_table=dlq_table,
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
    assert_type(session, AsyncSession)
    assert_type(await outbox.publish(order, "mails"), int | None)
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


router = OutboxRouter(
    prefix="shop.",
    handlers=[OutboxRoute(handle_batch, "orders", publishers=[OutboxRoutePublisher("bills")], max_workers=2)],
    ack_policy=AckPolicy.REJECT_ON_ERROR,
)
broker.include_router(router, prefix="eu.")
broker.include_routers(OutboxRouter(routers=[router]))


@router.subscriber("returns", ack_policy=AckPolicy.MANUAL)
async def from_router(body: bytes, message: OutboxMessage) -> None:
    del body
    await message.ack()


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
    assert_type(await broker.publish("text", "orders", session=connection), int | None)
    assert_type(await broker.publish_batch(1, 2.5, "x", None, queue="orders", session=session, keys=["a"]), list[int])
    assert_type(await publisher.publish(Order(id=1), session=session), int | None)
    assert_type(await broker.cancel_timer(queue="orders", timer_id="t", session=session), bool)
    assert_type(await broker.fetch_unprocessed(session=session, queue="orders", limit=5), list[Unprocessed])


def publish_without_a_loop(sync_engine: Engine) -> None:
    with Session(sync_engine) as session, session.begin():
        assert_type(broker.publish_sync({"id": 1}, "orders", session=session), int | None)
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
    await broker.stop()


async def under_test(session: AsyncSession) -> None:
    async with TestOutboxBroker(broker, run_loops=True) as tested:
        assert_type(tested, OutboxBroker)
        await tested.publish(1, "orders", session=session)
        handle.mock.assert_called_once_with({"id": 1})
        await handle_batch.wait_call(1.0)
    test = TestOutboxBroker(broker, OutboxBroker(outbox_table=outbox_table))
    async with test as brokers:
        assert_type(brokers, tuple[OutboxBroker, ...])
        test.advance(timedelta(hours=1))
        assert_type(test.feed("orders", b"{}"), int | None)

"""Starting, stopping and pinging; several brokers in one application; publishing without an event loop."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from faststream import FastStream
from faststream.nats import NatsBroker, TestNatsBroker
from sqlalchemy import URL, Engine, MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from faststream_outbox import OutboxBroker, OutboxResponse, TestOutboxBroker
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage, OutboxSession
from faststream_outbox.schema import make_outbox_table
from faststream_outbox.testing import fake_session
from tests.broker.conformance.ways import Seen, answering, noting
from tests.tables import existing
from tests.waiting import eventually


@pytest.fixture
async def broker(engine: AsyncEngine, table: Table) -> AsyncIterator[OutboxBroker]:
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None)
    yield broker
    await broker.stop()


@pytest.fixture
async def seen(broker: OutboxBroker) -> Seen:
    """What a handler of `orders` saw."""
    seen = Seen()
    noting(broker, seen)
    return seen


async def _publish(broker: OutboxBroker, body: Any, queue: str = "orders", **options: Any) -> None:
    async with AsyncSession(broker.engine) as session, session.begin():
        await broker.publish(body, queue, session=session, **options)


async def test_start_twice_starts_once_and_a_stop_more_does_nothing(broker: OutboxBroker, seen: Seen) -> None:
    await broker.stop()
    assert not broker.running
    await broker.start()
    (worker,) = [subscriber.worker for subscriber in broker.subscribers]  # type: ignore[attr-defined]
    await broker.start()
    assert [subscriber.worker for subscriber in broker.subscribers] == [worker]  # type: ignore[attr-defined]
    await broker.stop()
    await broker.stop()
    assert not broker.running


async def test_broker_can_be_started_again(broker: OutboxBroker, seen: Seen) -> None:
    async with broker.engine.connect() as connection:
        for round_ in range(2):
            await broker.start()
            await _publish(broker, round_)
            await seen.first(round_ + 1)
            await broker.stop()
        # The engine that was given stays open.
        assert (await connection.execute(text("select 1"))).scalar_one() == 1
    assert seen == [0, 1]


async def test_entering_a_broker_connects_and_does_not_consume(broker: OutboxBroker, seen: Seen) -> None:
    async with broker:
        await _publish(broker, 1)
        assert [subscriber.worker for subscriber in broker.subscribers] == [None]  # type: ignore[attr-defined]
        assert not broker.running


async def test_stop_leaves_no_connection_of_its_own(database_url: URL, table: Table, sync_engine: Engine) -> None:
    named = {"application_name": "stopped"}
    engine = create_async_engine(database_url, connect_args={"server_settings": named}, pool_size=5)
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None)
    noting(broker, Seen())
    await broker.start()
    await broker.stop()
    await engine.dispose()

    def no_connection_is_left() -> bool:
        with sync_engine.connect() as connection:
            asked = "select count(*) from pg_stat_activity where application_name like '%stopped'"
            return not connection.execute(text(asked)).scalar_one()

    await eventually(no_connection_is_left)


async def test_ping_says_yes_while_it_runs_and_no_when_a_loop_is_dead(broker: OutboxBroker, seen: Seen) -> None:
    await broker.start()
    assert await broker.ping(timeout=30)
    service: Any = broker.client._services[0]
    task = service._task
    task.cancel()
    await asyncio.wait([task])
    assert not await broker.ping(timeout=5)


async def test_application_runs_two_outbox_brokers(
    engine: AsyncEngine, broker: OutboxBroker, seen: Seen, sync_engine: Engine
) -> None:
    with existing(make_outbox_table(MetaData(), table_name="second_outbox"), sync_engine) as second_table:
        second = OutboxBroker(engine, outbox_table=second_table, dlq_table=None, logger=None)
        noting(second, seen, note=lambda body, message: f"second {body}")
        app = FastStream(broker, second, logger=None)
        await app.start()
        await _publish(second, 1)
        await seen.first(1)
        await _publish(broker, 2)
        await seen.first(2)
        await app.stop()
    assert seen == ["second 1", 2]
    assert not broker.running


async def test_each_driver_carries_a_message_through_a_transactional_handler(
    driver_engine: AsyncEngine, table: Table
) -> None:
    broker = OutboxBroker(driver_engine, outbox_table=table, dlq_table=None, logger=None)
    seen = Seen()

    @broker.subscriber("orders", transactional=True)
    async def handle(body: dict[str, int], session: OutboxSession) -> OutboxResponse:
        await session.execute(text("select 1"))
        return OutboxResponse(body, queue="bills", headers={"a": "1"})

    @broker.subscriber("bills", batch=True)
    async def collected(bodies: list[dict[str, int]], batch: OutboxBatchMessage) -> None:
        seen(bodies, batch.headers["a"])

    await broker.start()
    try:
        await _publish(broker, {"id": 1})
        assert await seen.first() == [([{"id": 1}], "1")]
    finally:
        await broker.stop()


async def test_publish_sync_from_a_plain_thread_is_delivered(
    broker: OutboxBroker, seen: Seen, sync_engine: Engine
) -> None:
    def publish() -> None:
        with Session(sync_engine) as session, session.begin():
            broker.publish_sync({"id": 1}, "orders", session=session)

    await broker.start()
    await asyncio.to_thread(publish)
    assert await seen.first() == [{"id": 1}]


def test_publish_sync_needs_no_event_loop(database_url: URL, table: Table, sync_engine: Engine) -> None:
    broker = OutboxBroker(create_async_engine(database_url), outbox_table=table, logger=None)
    with Session(sync_engine) as session, session.begin():
        number = broker.publish_sync("x", queue="orders", session=session, headers={"a": "1"}, key="k")
        broker.publish_sync("y", "orders", session=session, timer_id="t")
        assert broker.cancel_timer_sync(queue="orders", timer_id="t", session=session)
    with sync_engine.connect() as connection:
        (row,) = connection.execute(text(f"select id, payload, headers->>'a', key from {table.name}")).all()
    assert tuple(row) == (number, b"x", "1", "k")


@pytest.mark.parametrize("are_passed_on", [False, True])
async def test_stacked_publisher_of_another_broker_relays_and_passes_headers_on_where_asked_for(
    table: Table, *, are_passed_on: bool
) -> None:
    outbox, nats = OutboxBroker(outbox_table=table, logger=None), NatsBroker(logger=None)
    headers: list[dict[str, Any]] = []
    nats.publisher("subject")(answering(outbox, propagate_inbound_headers=are_passed_on))

    @nats.subscriber("subject")
    async def arrived(body: int, message: OutboxMessage) -> None:
        headers.append(dict(message.headers))

    async with TestNatsBroker(nats), TestOutboxBroker(outbox) as tested:
        await tested.publish(1, "orders", session=fake_session(), correlation_id="c1", headers={"tenant": "a"})
        await arrived.assert_called_once_with(2, correlation_id="c1")
    assert [one.get("tenant") for one in headers] == ["a" if are_passed_on else None]


async def test_inbound_headers_give_way_to_the_responses_own(broker: OutboxBroker) -> None:
    seen = Seen()

    @broker.subscriber("orders", propagate_inbound_headers=True, transactional=True)
    async def handle(body: int) -> OutboxResponse:
        return OutboxResponse(body, queue="bills", headers={"mine": "1"} if body == 1 else None)

    noting(
        broker,
        seen,
        "bills",
        note=lambda body, message: (body, message.headers.get("mine"), message.headers.get("tenant")),
    )
    await broker.start()
    for body in (1, 2):
        await _publish(broker, body, headers={"tenant": "a"})
        await seen.first(body)
    assert seen == [(1, "1", None), (2, None, "a")]


async def test_failing_publisher_of_another_broker_keeps_the_message(broker: OutboxBroker) -> None:
    nats = NatsBroker(logger=None)
    publisher = nats.publisher("subject", stream="stream")
    publisher(answering(broker))

    async def fail(*_: Any, **__: Any) -> None:
        raise ConnectionError

    publisher._publish = fail  # type: ignore[method-assign]
    nats.running = True
    await broker.start()
    await _publish(broker, 1)

    async def the_message_waits_for_its_next_attempt() -> bool:
        async with AsyncSession(broker.engine) as session:
            (row,) = await broker.fetch_unprocessed(session=session)
        return row.attempts_count == 1

    await eventually(the_message_waits_for_its_next_attempt)

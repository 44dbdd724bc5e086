"""Starting, stopping and pinging; several brokers in one application; publishing without an event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from faststream import FastStream
from faststream.nats import NatsBroker, TestNatsBroker
from sqlalchemy import URL, Engine, MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from faststream_outbox import OutboxBroker, OutboxResponse, TestOutboxBroker
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage, OutboxSession
from faststream_outbox.errors import SessionRequired
from faststream_outbox.schema import make_outbox_table
from faststream_outbox.testing import fake_session
from tests.broker.conformance.ways import Seen
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

    @broker.subscriber("orders")
    async def handle(body: Any) -> None:
        seen(body)

    return seen


async def _publish(broker: OutboxBroker, engine: AsyncEngine, body: Any, queue: str = "orders", **options: Any) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish(body, queue, session=session, **options)


async def test_start_twice_starts_once(broker: OutboxBroker, engine: AsyncEngine, seen: Seen) -> None:
    await broker.start()
    (worker,) = [subscriber.worker for subscriber in broker.subscribers]  # type: ignore[attr-defined]
    await broker.start()
    assert [subscriber.worker for subscriber in broker.subscribers] == [worker]  # type: ignore[attr-defined]


async def test_stop_before_start_does_nothing(broker: OutboxBroker, seen: Seen) -> None:
    await broker.stop()
    assert not broker.running


async def test_stop_twice_does_nothing_more(broker: OutboxBroker, seen: Seen) -> None:
    await broker.start()
    await broker.stop()
    await broker.stop()
    assert not broker.running


async def test_broker_can_be_started_again(broker: OutboxBroker, engine: AsyncEngine, seen: Seen) -> None:
    for round_ in range(2):
        await broker.start()
        await _publish(broker, engine, round_)
        await seen.first(round_ + 1)
        await broker.stop()
    assert seen == [0, 1]


async def test_entering_a_broker_connects_and_does_not_consume(
    broker: OutboxBroker, engine: AsyncEngine, seen: Seen
) -> None:
    async with broker:
        await _publish(broker, engine, 1)
        assert [subscriber.worker for subscriber in broker.subscribers] == [None]  # type: ignore[attr-defined]
        assert not broker.running


async def test_engine_stays_open_after_a_stop(broker: OutboxBroker, engine: AsyncEngine, seen: Seen) -> None:
    async with engine.connect() as connection:
        await broker.start()
        await broker.stop()
        assert (await connection.execute(text("select 1"))).scalar_one() == 1


async def test_stop_leaves_no_connection_of_its_own(database_url: URL, table: Table, sync_engine: Engine) -> None:
    named = {"application_name": "stopped"}
    engine = create_async_engine(database_url, connect_args={"server_settings": named}, pool_size=5)
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None)

    @broker.subscriber("orders")
    async def handle(body: int) -> None: ...

    await broker.start()
    await broker.stop()
    await engine.dispose()

    def no_connection_is_left() -> bool:
        with sync_engine.connect() as connection:
            asked = "select count(*) from pg_stat_activity where application_name like '%stopped'"
            return not connection.execute(text(asked)).scalar_one()

    await eventually(no_connection_is_left)


async def test_ping_says_yes_while_it_runs(broker: OutboxBroker, seen: Seen) -> None:
    await broker.start()
    assert await broker.ping(timeout=30)


async def test_ping_says_no_when_a_loop_is_dead(broker: OutboxBroker, seen: Seen) -> None:
    await broker.start()
    service: Any = broker.client._services[0]
    task = service._task
    task.cancel()
    await asyncio.wait([task])
    assert not await broker.ping(timeout=5)


@pytest.mark.examines
async def test_ping_says_no_when_the_database_is_out_of_reach(table: Table) -> None:
    engine = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/none")
    assert not await OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None).ping(timeout=5)
    await engine.dispose()


async def test_broker_without_an_engine_says_what_to_do(table: Table) -> None:
    with pytest.raises(Exception, match=r"OutboxBroker\(engine, outbox_table=…\)"):
        await OutboxBroker(outbox_table=table).start()


async def test_application_runs_two_outbox_brokers(
    engine: AsyncEngine, broker: OutboxBroker, seen: Seen, sync_engine: Engine
) -> None:
    with existing(make_outbox_table(MetaData(), table_name="second_outbox"), sync_engine) as second_table:
        second = OutboxBroker(engine, outbox_table=second_table, dlq_table=None, logger=None)

        @second.subscriber("orders")
        async def handle(body: Any) -> None:
            seen(f"second {body}")

        app = FastStream(broker, second, logger=None)
        await app.start()
        await _publish(second, engine, 1)
        await seen.first(1)
        await _publish(broker, engine, 2)
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
        await _publish(broker, driver_engine, {"id": 1})
        assert await seen.first() == [([{"id": 1}], "1")]
    finally:
        await broker.stop()


async def test_publishing_without_a_session_is_refused_and_says_what_to_do(broker: OutboxBroker) -> None:
    with pytest.raises(SessionRequired, match=r"publish\(body, queue=…, session=session\).*autocommit=True"):
        await broker.publish(1, "orders")


async def test_autocommit_publishes_in_a_transaction_of_its_own(engine: AsyncEngine, table: Table) -> None:
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, autocommit=True, logger=None)
    await broker.publish(1, "orders")
    async with AsyncSession(engine) as session:
        assert len(await broker.fetch_unprocessed(session=session)) == 1


async def test_publish_does_not_commit(broker: OutboxBroker, engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session:
        await session.begin()
        await broker.publish(1, "orders", session=session)
        await session.rollback()
        assert await broker.fetch_unprocessed(session=session) == []


@pytest.mark.parametrize("kind", ["Session", "Connection"])
async def test_publish_sync_from_a_plain_thread_is_delivered(
    broker: OutboxBroker, seen: Seen, sync_engine: Engine, kind: str
) -> None:
    def publish() -> None:
        if kind == "Session":
            with Session(sync_engine) as session, session.begin():
                broker.publish_sync({"id": 1}, "orders", session=session)
        else:
            with sync_engine.begin() as connection:
                broker.publish_sync({"id": 1}, "orders", session=connection)

    await broker.start()
    thread = threading.Thread(target=publish)
    thread.start()
    assert await seen.first() == [{"id": 1}]
    thread.join()


def test_publish_sync_needs_no_event_loop(database_url: URL, table: Table, sync_engine: Engine) -> None:
    broker = OutboxBroker(create_async_engine(database_url), outbox_table=table, logger=None)
    with Session(sync_engine) as session, session.begin():
        number = broker.publish_sync("x", queue="orders", session=session, headers={"a": "1"}, key="k")
    with sync_engine.connect() as connection:
        (row,) = connection.execute(text(f"select id, payload, headers->>'a', key from {table.name}")).all()
    assert tuple(row) == (number, b"x", "1", "k")


def test_publish_sync_rolls_back_with_its_session(database_url: URL, table: Table, sync_engine: Engine) -> None:
    broker = OutboxBroker(create_async_engine(database_url), outbox_table=table, logger=None)
    with Session(sync_engine) as session:
        broker.publish_sync("x", "orders", session=session)
        session.rollback()
    with sync_engine.connect() as connection:
        assert connection.execute(text(f"select count(*) from {table.name}")).scalar_one() == 0


def test_timer_is_cancelled_without_an_event_loop(database_url: URL, table: Table, sync_engine: Engine) -> None:
    broker = OutboxBroker(create_async_engine(database_url), outbox_table=table, logger=None)
    with Session(sync_engine) as session, session.begin():
        broker.publish_sync("x", "orders", session=session, timer_id="t", activate_in=timedelta(hours=1))
        assert broker.cancel_timer_sync(queue="orders", timer_id="t", session=session)


async def test_stacked_publisher_of_another_broker_relays(table: Table) -> None:
    outbox, nats = OutboxBroker(outbox_table=table, logger=None), NatsBroker(logger=None)

    @nats.publisher("subject")
    @outbox.subscriber("orders")
    async def handle(body: int) -> int:
        return body + 1

    @nats.subscriber("subject")
    async def arrived(body: int) -> None: ...

    async with TestNatsBroker(nats), TestOutboxBroker(outbox) as tested:
        await tested.publish(1, "orders", session=fake_session(), correlation_id="c1")
        await arrived.assert_called_once_with(2, correlation_id="c1")


async def test_inbound_headers_are_passed_on_where_asked_for(table: Table) -> None:
    outbox, nats = OutboxBroker(outbox_table=table, logger=None), NatsBroker(logger=None)
    headers: list[dict[str, Any]] = []

    @nats.publisher("subject")
    @outbox.subscriber("orders", propagate_inbound_headers=True)
    async def handle(body: int) -> int:
        return body

    @nats.subscriber("subject")
    async def looked(body: int, message: OutboxMessage) -> None:
        headers.append(dict(message.headers))

    async with TestNatsBroker(nats), TestOutboxBroker(outbox) as tested:
        await tested.publish(1, "orders", session=fake_session(), headers={"tenant": "a"})
    assert [one["tenant"] for one in headers] == ["a"]


async def test_inbound_headers_stay_behind_where_not_asked_for(table: Table) -> None:
    outbox, nats = OutboxBroker(outbox_table=table, logger=None), NatsBroker(logger=None)
    headers: list[dict[str, Any]] = []

    @nats.publisher("subject")
    @outbox.subscriber("orders")
    async def handle(body: int) -> int:
        return body

    @nats.subscriber("subject")
    async def looked(body: int, message: OutboxMessage) -> None:
        headers.append(dict(message.headers))

    async with TestNatsBroker(nats), TestOutboxBroker(outbox) as tested:
        await tested.publish(1, "orders", session=fake_session(), headers={"tenant": "a"})
    assert "tenant" not in headers[0]


async def test_inbound_headers_give_way_to_the_responses_own(engine: AsyncEngine, broker: OutboxBroker) -> None:
    seen = Seen()

    @broker.subscriber("orders", propagate_inbound_headers=True, transactional=True)
    async def handle(body: int) -> OutboxResponse:
        return OutboxResponse(body, queue="bills", headers={"mine": "1"} if body == 1 else None)

    @broker.subscriber("bills")
    async def looked(body: int, message: OutboxMessage) -> None:
        seen((body, message.headers.get("mine"), message.headers.get("tenant")))

    await broker.start()
    for body in (1, 2):
        await _publish(broker, engine, body, headers={"tenant": "a"})
        await seen.first(body)
    assert seen == [(1, "1", None), (2, None, "a")]


async def test_failing_publisher_of_another_broker_keeps_the_message(engine: AsyncEngine, broker: OutboxBroker) -> None:
    nats = NatsBroker(logger=None)
    tried = asyncio.Event()
    publisher = nats.publisher("subject", stream="stream")

    async def fail(*_: Any, **__: Any) -> None:
        tried.set()
        raise ConnectionError

    @publisher
    @broker.subscriber("orders")
    async def handle(body: int) -> int:
        return body

    publisher._publish = fail  # type: ignore[method-assign]
    nats.running = True
    await broker.start()
    await _publish(broker, engine, 1)
    async with asyncio.timeout(30):
        await tried.wait()

    async def the_message_waits_for_its_next_attempt() -> bool:
        async with AsyncSession(engine) as session:
            (row,) = await broker.fetch_unprocessed(session=session)
        return row.attempts_count == 1

    await eventually(the_message_waits_for_its_next_attempt)

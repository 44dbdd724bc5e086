"""Ready is who has a database that answers and has the tables; asking costs little and never takes long."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from sqlalchemy import MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import OutboxBroker, TestOutboxBroker, make_outbox_table
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.health import readiness
from faststream_outbox.health import Health, health
from tests.waiting import eventually

pytestmark = pytest.mark.examines


Make = Callable[..., OutboxBroker]


@pytest.fixture
async def broker_on(engine: AsyncEngine, table: Table) -> AsyncIterator[Make]:
    """Makes brokers on the table of the test, or on another; they are stopped at its end."""
    made: list[OutboxBroker] = []

    def make(where: Table = table, on: AsyncEngine = engine, **options: Any) -> OutboxBroker:
        made.append(OutboxBroker(on, outbox_table=where, dlq_table=None, **{"logger": None, **options}))
        return made[-1]

    yield make
    for broker in made:
        await broker.stop()


@pytest.fixture
def missing() -> Table:
    """A table that is nowhere."""
    return make_outbox_table(MetaData(), "not_there")


@pytest.fixture(autouse=True)
def examined_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "EXAMINE_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 0.2)


async def execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


async def test_a_database_without_tables_is_not_ready_and_not_pinged(
    engine: AsyncEngine, broker_on: Make, missing: Table
) -> None:
    broker = broker_on(missing)
    assert not await broker.ping(30)
    found = await health(broker, timeout=30)
    assert (found.live, found.ready, found.unready) == (True, False, ("not_there: the table does not exist",))
    async with engine.begin() as connection:
        await connection.run_sync(missing.create)
    try:
        assert (await health(broker, timeout=30)).ready
        assert await broker.ping(30)
    finally:
        await execute(engine, "drop table not_there")


async def test_a_column_that_is_missing_is_not_ready(engine: AsyncEngine, table: Table, broker_on: Make) -> None:
    await execute(engine, f"alter table {table.name} drop column deliveries_count")
    broker = broker_on()
    assert (await health(broker, timeout=30)).unready == ("public.outbox.deliveries_count: the column is missing",)


async def test_an_index_that_is_missing_is_slow_and_not_fatal(
    engine: AsyncEngine, table: Table, broker_on: Make
) -> None:
    index = next(index for index in table.indexes if not index.unique)
    await execute(engine, f"drop index {index.name}")
    broker = broker_on()
    found = await health(broker, timeout=30)
    assert found.ready
    assert f"public.outbox index {index.name}: the index is missing" in found.degraded[0]


async def test_a_table_that_is_dropped_under_workers_is_noticed(
    engine: AsyncEngine, table: Table, broker_on: Make
) -> None:
    broker = broker_on()

    @broker.subscriber("orders", min_fetch_interval=0.05, max_fetch_interval=0.05)
    async def handle(body: int) -> None: ...

    await broker.start()
    assert (await health(broker, timeout=30)).ready
    await execute(engine, f"drop table {table.name}")

    async def is_noticed() -> bool:
        return "outbox: the table does not exist" in (await health(broker, timeout=30)).unready

    await eventually(is_noticed)


async def test_missing_tables_are_said_at_the_start_also_of_who_only_publishes(
    engine: AsyncEngine, broker_on: Make, missing: Table, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shop")
    broker = broker_on(missing, logger=logging.getLogger("shop"))
    await broker.start()
    try:
        said = await eventually(lambda: [one for one in caplog.messages if "not_there" in one])
        assert "alembic upgrade head" in said[0]
        async with engine.begin() as connection:
            await connection.run_sync(missing.create)
        assert (await health(broker, timeout=30)).ready
        assert any("is as this version needs it" in one for one in caplog.messages)
    finally:
        await broker.stop()
        await execute(engine, "drop table if exists not_there")


async def test_no_probe_waits_for_the_pool_of_the_application(database_url: Any, broker_on: Make) -> None:
    engine = create_async_engine(database_url, pool_size=1, max_overflow=0)
    broker = broker_on(on=engine)
    async with engine.connect():
        assert (await health(broker, timeout=30)).ready
    await broker.stop()
    await engine.dispose()


async def test_many_probes_are_one_question_and_none_waits_for_a_silent_server(
    broker_on: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, over = 0, asyncio.Event()

    async def hang(*_: Any) -> Any:
        nonlocal asked
        asked += 1
        await over.wait()
        return []

    monkeypatch.setattr(readiness, "examined", hang)
    broker = broker_on()
    found = await asyncio.gather(*(health(broker, timeout=0.05) for _ in range(100)))
    assert {one.unready for one in found} == {("the database has not answered within 0.05 s",)}
    await eventually(lambda: asked)
    assert asked == 1
    over.set()


async def test_who_works_needs_no_question(broker_on: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH_SECONDS", 30.0)
    broker = broker_on()

    @broker.subscriber("orders")
    async def handle(body: int) -> None: ...

    await broker.start()
    await eventually(lambda: any(connection.answered_at > 0 for connection in broker.client.connections))
    assert (await health(broker, timeout=30)).ready
    checks: Any = broker.checks
    assert not checks._readiness._connection.is_open


async def test_connection_for_questions_ends_with_the_broker(broker_on: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = broker_on()
    checks: Any = broker.checks
    connection: DedicatedConnection = checks._readiness._connection

    async def is_asked() -> bool:
        await health(broker, timeout=30)
        return connection.is_open

    await eventually(is_asked)
    await broker.stop()
    assert not connection.is_open
    openings = connection.openings
    monkeypatch.setattr(readiness, "KEEP_SECONDS", 0.0)

    async def is_asked_again() -> bool:
        await health(broker, timeout=30)
        return connection.openings > openings

    await eventually(is_asked_again)
    await eventually(lambda: not connection.is_open)


async def test_a_broker_without_an_engine_is_not_ready_until_it_is_tested(table: Table) -> None:
    broker = OutboxBroker(outbox_table=table, dlq_table=None, logger=None)
    assert (await health(broker, timeout=30)).unready == ("there is no database",)
    assert not await broker.ping(1)
    for options in ({}, {"run_loops": True}):
        async with TestOutboxBroker(broker, **options):
            assert await health(broker, timeout=30) == Health(live=True, ready=True)

"""A transaction delays its own messages and nobody else's, wherever it is open and whoever has it open."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, ask, delivered, drain, put
from tests.waiting import eventually

URI = "kafka://orders"


@pytest.fixture
async def elsewhere(engine: AsyncEngine, database_url: URL) -> AsyncIterator[AsyncEngine]:
    """Another database of the same server, with a table in it."""
    name = f"{database_url.database}_elsewhere"
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text(f"create database {name}"))
    other = create_async_engine(database_url.set(database=name))
    async with other.begin() as connection:
        await connection.execute(text("create table stranger (n int)"))
    yield other
    await other.dispose()
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text(f"drop database {name} with (force)"))


async def _holds_back_the_horizon(connection: AsyncConnection, watcher: AsyncEngine) -> bool:
    mine = (await connection.execute(text("select pg_current_xact_id()::text::bigint"))).scalar_one()
    rows = await ask(watcher, "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
    return bool(rows[0][0] <= mine)


@pytest.mark.slow
async def test_a_writer_in_another_database_stalls_nobody(
    engine: AsyncEngine, outbox: Outbox, elsewhere: AsyncEngine
) -> None:
    async with elsewhere.connect() as stranger:
        await stranger.execute(text("insert into stranger values (1)"))
        assert await _holds_back_the_horizon(stranger, engine)
        for number in range(3):
            await put(outbox, URI, number)
            assert await delivered(outbox, "one") == [number]
        assert await delivered(outbox, "other") == [0, 1, 2]
        await stranger.rollback()


@pytest.mark.parametrize(
    "statement",
    [
        "insert into stranger values (2)",
        "update stranger set n = n + 1",
        "select from stranger for update",
        "create temporary table passing (n int)",
        "create index on stranger (n)",
    ],
)
async def test_a_writer_in_the_same_database_stalls_nobody(engine: AsyncEngine, outbox: Outbox, statement: str) -> None:
    await ask(engine, "create table stranger (n int)")
    try:
        await ask(engine, "insert into stranger values (1)")
        async with engine.connect() as stranger:
            await stranger.execute(text(statement))
            assert await _holds_back_the_horizon(stranger, engine)
            await put(outbox, URI, 1)
            assert await delivered(outbox, "broker") == [1]
            await stranger.rollback()
    finally:
        await ask(engine, "drop table stranger")


async def test_a_publisher_that_does_not_commit_delays_its_own_messages_only(
    engine: AsyncEngine, outbox: Outbox
) -> None:
    async with engine.connect() as slow:
        await outbox.publish(slow, OutboxMessage(URI, "slow"))
        await put(outbox, URI, "one")
        assert await delivered(outbox, "broker") == ["one"]
        await outbox.publish(slow, OutboxMessage(URI, "slow again"))
        await put(outbox, URI, "two")
        assert await delivered(outbox, "broker") == ["two"]
        await slow.commit()
    assert await delivered(outbox, "broker") == ["slow", "slow again"]


async def test_a_publisher_that_rolls_back_delays_nobody_and_leaves_no_gap_for_ever(
    engine: AsyncEngine, outbox: Outbox
) -> None:
    async with engine.connect() as failed:
        await outbox.publish(failed, OutboxMessage(URI, "never"))
        await put(outbox, URI, "one")
        assert await delivered(outbox, "broker") == ["one"]
        await failed.rollback()
    await put(outbox, URI, "two")
    assert await delivered(outbox, "broker") == ["two"]

    async def no_gaps() -> bool:
        await outbox.client.sequencer.catch_up()
        return not await ask(engine, "select from outbox_gaps")

    await eventually(no_gaps)


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "with a transaction"])
async def test_a_slow_subscriber_of_one_group_hides_nothing_from_another(
    outbox: Outbox, *, transactional: bool
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(message: OutboxMessage, session: AsyncSession | None = None) -> None:
        if session is not None:
            await session.execute(text("select pg_current_xact_id()"))
        began.set()
        await go_on.wait()

    await put(outbox, URI, 1)
    slow_one = asyncio.create_task(outbox.dispatch(slow, "slow", transactional=transactional))
    await asyncio.wait_for(began.wait(), 30)
    await put(outbox, URI, 2)
    assert await delivered(outbox, "quick") == [1, 2]
    go_on.set()
    await slow_one


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "with a transaction"])
async def test_a_slow_subscriber_hides_nothing_from_the_other_workers_of_its_group(
    outbox: Outbox, *, transactional: bool
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow(message: OutboxMessage, session: AsyncSession | None = None) -> None:
        if session is not None:
            await session.execute(text("select pg_current_xact_id()"))
        began.set()
        await go_on.wait()

    uris = [f"{URI}/{number}" for number in range(50)]
    for uri in uris:
        await put(outbox, uri, uri)
    slow_one = asyncio.create_task(
        outbox.dispatch(slow, "broker", worker_id=0, num_workers=2, transactional=transactional)
    )
    await asyncio.wait_for(began.wait(), 30)
    await put(outbox, f"{URI}/later", "later")
    collector = Collector()
    await drain(outbox, collector, "broker", worker_id=1, num_workers=2)
    expected = {message.uri for message in collector.messages}
    go_on.set()
    await slow_one
    rest = Collector()
    await drain(outbox, rest, "broker", worker_id=0, num_workers=2)
    assert expected
    assert len(collector.messages) + len(rest.messages) + (await slow_one).handled == 51


async def test_a_plain_handler_runs_with_no_transaction_open(engine: AsyncEngine, outbox: Outbox) -> None:
    open_transactions: list[int] = []

    async def handle(message: OutboxMessage) -> None:
        rows = await ask(
            engine,
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and xact_start is not null",
        )
        open_transactions.append(rows[0][0])

    await put(outbox, URI, 1)
    await outbox.dispatch(handle, "broker")
    assert open_transactions == [0]

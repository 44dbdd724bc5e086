"""Event loops one after the other in one program: workers and brokers go on in each, also where nobody stopped them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import URL, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, Done, OutboxClient, Worker
from tests.waiting import eventually

MESSAGES = 20


@pytest.fixture(params=["asyncpg", "psycopg"])
def loose_engine(request: pytest.FixtureRequest, database_url: URL) -> AsyncEngine:
    """An engine that keeps no connection, as one must be that serves several loops."""
    return create_async_engine(database_url.set(drivername=f"postgresql+{request.param}"), poolclass=NullPool)


@pytest.fixture(params=["stopped", "left"])
def is_stopped(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "stopped")


@pytest.fixture(autouse=True)
def no_loop_of_the_tests() -> Iterator[None]:
    """Each `asyncio.run` ends with no loop set."""
    yield
    asyncio.set_event_loop_policy(None)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(40):
            await scene()

    asyncio.run(within())


async def left(engine: AsyncEngine, table: Table) -> int:
    async with engine.connect() as connection:
        return int((await connection.execute(text(f"select count(*) from {table.name}"))).scalar_one())


@pytest.mark.slow
def test_a_worker_works_in_each(loose_engine: AsyncEngine, table: Table, dlq_table: Table, *, is_stopped: bool) -> None:
    handled: list[int] = []

    async def handle(claim: Claim) -> Done:
        handled.append(claim.id)
        return DONE

    client = OutboxClient(loose_engine, table, dlq_table=dlq_table)
    worker = Worker(loose_engine, table, "orders", handle, client=client, max_workers=3)

    async def scene() -> None:
        await worker.start()
        for _ in range(MESSAGES):
            async with AsyncSession(loose_engine) as session, session.begin():
                await publish(session, table, Envelope(queue="orders", body=b""), wakeups=client.wakeups)

        async def all_is_settled() -> bool:
            return not await left(loose_engine, table)

        await eventually(all_is_settled, timeout=30)
        if is_stopped:
            await worker.stop()

    for count in (1, 2, 3):
        run(scene)
        assert len(handled) == len(set(handled)) == count * MESSAGES


@pytest.mark.slow
def test_a_broker_works_in_each(loose_engine: AsyncEngine, table: Table, dlq_table: Table, *, is_stopped: bool) -> None:
    handled: list[int] = []
    broker = OutboxBroker(loose_engine, outbox_table=table, dlq_table=dlq_table, logger=None)

    @broker.subscriber("orders", max_workers=3)
    async def handle(body: int) -> None:
        handled.append(body)

    async def scene() -> None:
        await broker.start()
        for number in range(MESSAGES):
            async with AsyncSession(loose_engine) as session, session.begin():
                await broker.publish(number, queue="orders", session=session)

        async def all_is_settled() -> bool:
            return not await left(loose_engine, table)

        await eventually(all_is_settled, timeout=30)
        assert await broker.ping()
        if is_stopped:
            await broker.stop()

    for count in (1, 2):
        run(scene)
        assert len(handled) == count * MESSAGES


def test_what_a_loop_left_behind_can_be_stopped_in_the_next(
    loose_engine: AsyncEngine, table: Table, dlq_table: Table
) -> None:
    async def handle(claim: Claim) -> Done:
        return DONE

    client = OutboxClient(loose_engine, table, dlq_table=dlq_table)
    worker = Worker(loose_engine, table, "orders", handle, client=client)
    run(worker.start)
    run(worker.stop)
    assert not worker.is_running


def test_workers_of_one_client_do_not_run_in_two_loops_at_once(
    loose_engine: AsyncEngine, table: Table, dlq_table: Table
) -> None:
    async def handle(claim: Claim) -> Done:
        return DONE

    client = OutboxClient(loose_engine, table, dlq_table=dlq_table)
    one, two = (Worker(loose_engine, table, "orders", handle, client=client) for _ in range(2))

    async def scene() -> None:
        await one.start()
        with pytest.raises(RuntimeError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, two.start())
        await one.stop()

    run(scene)


def test_what_was_handled_is_written_although_its_loop_ends_without_a_stop(
    loose_engine: AsyncEngine, table: Table, dlq_table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program ends at the moment at which the outcome is on its way."""
    fetch, sent = DedicatedConnection.fetch, asyncio.Event()

    async def slow(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
        if statement.name == "settle_done" and not sent.is_set():
            sent.set()
            await asyncio.Event().wait()
        return await fetch(connection, statement, values)

    async def handle(claim: Claim) -> Done:
        return DONE

    monkeypatch.setattr(DedicatedConnection, "fetch", slow)
    client = OutboxClient(loose_engine, table, dlq_table=dlq_table)
    worker = Worker(loose_engine, table, "orders", handle, client=client)

    async def scene() -> None:
        await worker.start()
        async with AsyncSession(loose_engine) as session, session.begin():
            await publish(session, table, Envelope(queue="orders", body=b""), wakeups=client.wakeups)
        await sent.wait()

    async def rest() -> None:
        assert await left(loose_engine, table) == 0

    run(scene)
    run(rest)

"""Behind PgBouncer in transaction mode: publishers and workers share server connections with strangers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.events.types import ListenerDeaf, ListenerReady, LoopCrashed, StatementFailed
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker
from tests.connections.test_dedicated import LEVEL, PID, sql
from tests.pgbouncer.conftest import SETTINGS, Left, Make
from tests.publish.ways import plain
from tests.wakeup.conftest import asleep

pytestmark = pytest.mark.pgbouncer

LIMIT = 30.0


async def _publish(engine: AsyncEngine, table: Table, client: OutboxClient, name: str, count: int) -> None:
    for number in range(count):
        async with AsyncSession(engine) as session, session.begin():
            body = f"{name}-{number}".encode()
            key = f"k{number % 3}" if number % 2 else None
            await publish(session, table, Envelope(queue="orders", body=body, key=key), wakeups=client.wakeups)


@asynccontextmanager
async def working(client: OutboxClient, table: Table, handle: Any, **options: Any) -> AsyncIterator[Worker]:
    worker = Worker(client.engine, table, "orders", handle, client=client, **options)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


@pytest.mark.slow
async def test_publishers_and_two_workers_share_the_server_connections(make: Make, left: Left, table: Table) -> None:
    handled: list[bytes] = []
    done, troubles = asyncio.Event(), []

    async def handle(claim: Claim) -> Outcome:
        handled.append(claim.payload)
        if len(handled) >= 90:
            done.set()
        return DONE

    one, other = OutboxClient(make(), table), OutboxClient(make(), table)
    for client in (one, other):
        client.events.subscribe(troubles.append, StatementFailed, LoopCrashed)
    async with working(one, table, handle, max_workers=3), working(other, table, handle, max_workers=3):
        async with asyncio.TaskGroup() as group:
            for client, name in ((one, "a"), (other, "b"), (one, "c")):
                group.create_task(_publish(make(), table, client, name, 30))
        await asyncio.wait_for(done.wait(), LIMIT)
    assert troubles == []
    assert sorted(handled) == sorted(f"{name}-{number}".encode() for name in "abc" for number in range(30))
    assert left.statements() == []


@pytest.mark.parametrize(("driver", "settings"), [("asyncpg", SETTINGS["asyncpg"]), ("psycopg", {})])
async def test_wire_knows_the_pooler_and_leaves_nothing_behind(
    driver: str, settings: dict[str, Any], pooler: URL, left: Left
) -> None:
    # psycopg prepares what it has run a few times, unless told otherwise: our connection does that by itself
    engine = create_async_engine(pooler.set(drivername=f"postgresql+{driver}"), connect_args=settings)
    one, other = DedicatedConnection(engine), DedicatedConnection(engine)
    for _ in range(10):
        for connection in (one, other):
            assert (await connection.fetch(LEVEL, {}))[0][0] == "read committed"
            assert (await connection.fetch(PID, {}))[0][0]
    assert one.pooled
    assert other.pooled
    assert left.statements() == []
    await one.close()
    await other.close()


async def test_pooled_connection_has_its_name_only_while_it_does_something(make: Make, left: Left) -> None:
    connection = DedicatedConnection(make(), role="claim")
    (row,) = await connection.fetch(sql("select current_setting('application_name')"), {})
    assert row[0].startswith("outbox ")
    assert left.names() == []
    await connection.close()


async def test_rollback_behind_the_pooler_leaves_nothing(make: Make, table: Table) -> None:
    engine = make()
    async with AsyncSession(engine) as session:
        await publish(session, table, Envelope(queue="orders", body=b"lost"))
        await publish(session, table, *[Envelope(queue="orders", body=b"lost")] * 3)
        await session.rollback()
        await publish(session, table, Envelope(queue="orders", body=b"kept"))
        await session.commit()
    async with engine.connect() as connection:
        assert [row.payload for row in await connection.execute(table.select())] == [b"kept"]


@pytest.mark.slow
async def test_listening_through_the_pooler_is_recognised_as_deaf(make: Make, table: Table) -> None:
    reported: asyncio.Queue[Any] = asyncio.Queue()
    client = OutboxClient(make(), table)
    client.events.subscribe(reported.put_nowait, ListenerDeaf, ListenerReady)
    async with working(client, table, lambda claim: pytest.fail(str(claim))):
        assert type(await asyncio.wait_for(reported.get(), LIMIT)) is ListenerDeaf
        assert not client.listener.is_hearing


async def test_listen_dsn_goes_around_the_pooler(make: Make, database_url: URL, table: Table) -> None:
    options = {"listen_dsn": plain(database_url), "watch": False}
    async with asleep(make(), table, **options) as (_, handled):
        publisher = OutboxClient(make(), table)
        for number in range(5):
            await _publish(publisher.engine, table, publisher, str(number), 1)
            assert (await asyncio.wait_for(handled.get(), LIMIT)).payload == b"%d-0" % number

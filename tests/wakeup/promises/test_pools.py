"""Whatever pool the application has: hints leave by few connections, and never on one that is in use."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL, Table, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool, StaticPool

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.events.types import Handled
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.wakeup import wakeups as module
from faststream_outbox._internal.wakeup.hint import Notice
from faststream_outbox._internal.wakeup.wakeups import Wakeups
from faststream_outbox.events import Events
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, Done
from tests.queue.rig import Rig
from tests.waiting import eventually
from tests.wakeup.conftest import Channel

ORDER = Envelope(queue="orders", body=b"order")


@pytest.fixture(params=["asyncpg", "psycopg"])
def url(request: pytest.FixtureRequest, database_url: URL) -> URL:
    return database_url.set(drivername=f"postgresql+{request.param}")


@pytest.fixture
async def unpooled(url: URL) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url, poolclass=NullPool)
    yield engine
    await engine.dispose()


@pytest.fixture
async def single(url: URL) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url, poolclass=StaticPool)
    yield engine
    await engine.dispose()


async def send(engine: AsyncEngine, table: Table, wakeups: Wakeups) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await publish(session, table, ORDER, wakeups=wakeups)


async def test_without_a_pool_one_connection_sends_all_hints(
    unpooled: AsyncEngine, table: Table, channel: Channel
) -> None:
    opened: list[Any] = []
    wakeups = Wakeups(unpooled, Names.of(table), Events())
    for _ in range(5):
        await send(unpooled, table, wakeups)
        await wakeups.notifier(asyncio.get_running_loop()).flush()
    own: Any = wakeups._own
    assert (len(channel.heard()), own.openings) == (5, 1)
    event.listen(unpooled.sync_engine, "connect", lambda *_: opened.append(1))
    await wakeups.close()
    assert (own.is_open, opened) == (False, [])


async def test_it_is_closed_when_there_is_nothing_to_send(
    unpooled: AsyncEngine, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_SECONDS", 0.01)
    wakeups = Wakeups(unpooled, Names.of(table), Events())
    await send(unpooled, table, wakeups)
    own: Any = wakeups._own
    await eventually(lambda: own.openings == 1 and not own.is_open)
    await send(unpooled, table, wakeups)
    await eventually(lambda: own.openings == 2 and not own.is_open)


async def test_the_one_connection_of_a_pool_is_not_used_for_hints(
    single: AsyncEngine, table: Table, channel: Channel
) -> None:
    """On it another transaction may have begun, which a hint would commit."""
    wakeups = Wakeups(single, Names.of(table), Events())
    await send(single, table, wakeups)
    async with AsyncSession(single) as session:
        await session.execute(text("insert into outbox (queue, payload) values ('orders', 'never')"))
        await wakeups.close()
        await session.rollback()
    async with single.connect() as connection:
        count = (await connection.execute(text("select count(*) from outbox"))).scalar_one()
    assert (count, len(channel.heard())) == (1, 1)


async def test_workers_have_connections_of_their_own_beside_the_one_of_a_pool(
    single: AsyncEngine, table: Table, dlq_table: Table
) -> None:
    async def handle(claim: Claim) -> Done:
        return DONE

    rig = Rig(single, table, dlq_table)
    await rig.work(handle)
    await rig.put("order")
    await rig.witness.wait(Handled)
    await rig.close()


async def test_hint_that_is_interrupted_leaves_no_transaction_open(
    psycopg_engine: AsyncEngine, table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that ends meanwhile, or a stop that has no time: whoever is left in a transaction holds a snapshot."""
    pids: list[int] = []

    async def never_commit(connection: psycopg.AsyncConnection) -> None:
        pids.append(connection.info.backend_pid)
        await asyncio.Event().wait()

    wakeups = Wakeups(psycopg_engine, Names.of(table), Events())
    async with AsyncSession(psycopg_engine) as session, session.begin():
        await publish(session, table, ORDER)
    monkeypatch.setattr(psycopg.AsyncConnection, "commit", never_commit)
    sending = asyncio.create_task(wakeups._send(Notice("[]", [])))
    await eventually(lambda: pids)
    sending.cancel()
    await asyncio.wait([sending])
    monkeypatch.undo()

    async def is_gone() -> bool:
        async with psycopg_engine.connect() as connection:
            question = text("select 1 from pg_stat_activity where pid = any (:pids)")
            return (await connection.execute(question, {"pids": pids})).scalar() is None

    await eventually(is_gone)
    assert [record.message for record in caplog.records] == []

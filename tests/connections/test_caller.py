"""Which sessions and connections can be published through, and what is said of the others."""

from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, Engine, Table, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox._internal.connections.caller import caller_connection
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.errors import UnsupportedSession
from faststream_outbox.publish import cancel_timer, publish, publish_sync
from tests.publish.ways import plain

ENVELOPE = Envelope(queue="orders", body=b"")


@pytest.mark.parametrize("thing", [None, "postgresql://127.0.0.1/db", object(), 5])
async def test_what_is_no_session_is_refused(thing: Any, table: Table) -> None:
    with pytest.raises(UnsupportedSession, match="Pass the AsyncSession"):
        await publish(thing, table, ENVELOPE)
    with pytest.raises(UnsupportedSession, match="Pass the Session"):
        publish_sync(thing, table, ENVELOPE)
    with pytest.raises(UnsupportedSession):
        await cancel_timer(thing, table, queue="orders", timer_id="t")


async def test_session_of_the_other_kind_is_refused_with_the_function_to_use(
    engine: AsyncEngine, sync_engine: Engine, table: Table
) -> None:
    with Session(sync_engine) as session, pytest.raises(UnsupportedSession, match="publish_sync"):
        await publish(session, table, ENVELOPE)
    async with AsyncSession(engine) as session, engine.connect() as connection:
        for wrong in (session, connection):
            with pytest.raises(UnsupportedSession, match="use publish"):
                publish_sync(wrong, table, ENVELOPE)


async def test_raw_connection_of_the_other_kind_is_refused(database_url: URL, table: Table) -> None:
    with psycopg.connect(plain(database_url)) as connection, pytest.raises(UnsupportedSession, match="publish_sync"):
        await publish(connection, table, ENVELOPE)
    async with await psycopg.AsyncConnection.connect(plain(database_url)) as connection:
        with pytest.raises(UnsupportedSession):
            publish_sync(connection, table, ENVELOPE)


async def test_engine_or_pool_is_refused(
    engine: AsyncEngine, sync_engine: Engine, database_url: URL, table: Table
) -> None:
    async with asyncpg.create_pool(plain(database_url), min_size=1, max_size=1) as pool:
        for wrong in (engine, sync_engine, pool):
            with pytest.raises(UnsupportedSession):
                await publish(wrong, table, ENVELOPE)
            with pytest.raises(UnsupportedSession):
                publish_sync(wrong, table, ENVELOPE)


async def test_connection_that_is_not_open_is_refused(engine: AsyncEngine, table: Table) -> None:
    with pytest.raises(Exception, match=r"not open|not been started"):
        await publish(engine.connect(), table, ENVELOPE)


async def test_connections_of_a_class_of_the_applications_own_are_taken(
    database_url: URL, sync_engine: Engine, table: Table
) -> None:
    class Asyncpg(asyncpg.Connection):
        pass

    class Psycopg(psycopg.AsyncConnection[Any]):
        pass

    connection = await asyncpg.connect(plain(database_url), connection_class=Asyncpg)
    await publish(connection, table, ENVELOPE)
    await connection.close()
    async with await Psycopg.connect(plain(database_url)) as other:
        await publish(other, table, ENVELOPE)
    with sync_engine.connect() as looking:
        assert looking.execute(table.select()).scalars().all() == [1, 2]


def test_engine_of_another_database_is_refused(table: Table) -> None:
    with create_engine("sqlite://").connect() as connection, pytest.raises(UnsupportedSession, match="psycopg2"):
        publish_sync(connection, table, ENVELOPE)


async def test_transaction_in_an_autocommitting_connection_is_seen(database_url: URL, table: Table) -> None:
    async with await psycopg.AsyncConnection.connect(plain(database_url), autocommit=True) as connection:
        assert (await caller_connection(connection, table)).is_autocommit
        async with connection.transaction():
            assert not (await caller_connection(connection, table)).is_autocommit
    raw = await asyncpg.connect(plain(database_url))
    assert (await caller_connection(raw, table)).is_autocommit
    async with raw.transaction():
        assert not (await caller_connection(raw, table)).is_autocommit
    await raw.close()


async def test_autocommit_of_a_session_is_seen(driver_engine: AsyncEngine, table: Table) -> None:
    async with AsyncSession(driver_engine) as session:
        assert not (await caller_connection(session, table)).is_autocommit
    async with AsyncSession(driver_engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        assert (await caller_connection(session, table)).is_autocommit

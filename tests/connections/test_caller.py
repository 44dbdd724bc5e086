"""Which sessions and connections can be published through, and what is said of the others."""

from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL, Engine, MetaData, Table, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox._internal.connections.caller import caller_connection
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.errors import UnsupportedSession
from faststream_outbox.publish import cancel_timer, publish, publish_sync
from faststream_outbox.schema import make_outbox_table
from tests.cases import case
from tests.publish.ways import plain

ENVELOPE = Envelope(queue="orders", body=b"")
TABLE = make_outbox_table(MetaData())


async def test_what_is_no_session_is_refused_and_so_are_engines_and_pools(
    engine: AsyncEngine, sync_engine: Engine, database_url: URL
) -> None:
    async with asyncpg.create_pool(plain(database_url), min_size=1, max_size=1) as pool:
        for thing in (None, "postgresql://127.0.0.1/db", object(), 5, engine, sync_engine, pool):
            with case(thing):
                given: Any = thing
                with pytest.raises(UnsupportedSession, match="Pass the AsyncSession"):
                    await publish(given, TABLE, ENVELOPE)
                with pytest.raises(UnsupportedSession, match="Pass the Session"):
                    publish_sync(given, TABLE, ENVELOPE)
                with pytest.raises(UnsupportedSession):
                    await cancel_timer(given, TABLE, queue="orders", timer_id="t")


async def test_session_or_connection_of_the_other_kind_is_refused_with_the_function_to_use(
    engine: AsyncEngine, sync_engine: Engine, database_url: URL
) -> None:
    dsn = plain(database_url)
    with Session(sync_engine) as session, psycopg.connect(dsn) as raw:
        for wrong in (session, raw):
            with case(wrong), pytest.raises(UnsupportedSession, match="publish_sync"):
                await publish(wrong, TABLE, ENVELOPE)
    connecting = psycopg.AsyncConnection.connect(dsn)
    async with AsyncSession(engine) as session, engine.connect() as connection, await connecting as raw:
        for wrong in (session, connection, raw):
            with case(wrong), pytest.raises(UnsupportedSession, match="use publish"):
                publish_sync(wrong, TABLE, ENVELOPE)


async def test_connection_that_is_not_open_is_refused(engine: AsyncEngine) -> None:
    with pytest.raises(Exception, match=r"not open|not been started"):
        await publish(engine.connect(), TABLE, ENVELOPE)


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


def test_engine_of_another_database_is_refused() -> None:
    with create_engine("sqlite://").connect() as connection, pytest.raises(UnsupportedSession, match="psycopg2"):
        publish_sync(connection, TABLE, ENVELOPE)


async def is_autocommit(connection: Any) -> bool:
    return (await caller_connection(connection, TABLE)).is_autocommit


async def test_transaction_in_an_autocommitting_connection_is_seen(database_url: URL) -> None:
    async with await psycopg.AsyncConnection.connect(plain(database_url), autocommit=True) as connection:
        assert await is_autocommit(connection)
        async with connection.transaction():
            assert not await is_autocommit(connection)
    raw = await asyncpg.connect(plain(database_url))
    assert await is_autocommit(raw)
    async with raw.transaction():
        assert not await is_autocommit(raw)
    await raw.close()


async def test_autocommit_of_a_session_is_seen(driver_engine: AsyncEngine) -> None:
    for options, expected in (({}, False), ({"isolation_level": "AUTOCOMMIT"}, True)):
        async with AsyncSession(driver_engine.execution_options(**options)) as session:
            assert await is_autocommit(session) is expected

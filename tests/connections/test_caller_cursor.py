"""A statement on the cursor below SQLAlchemy ends as one of SQLAlchemy's own: same errors, same consequences."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import URL, Connection, Engine, MetaData, Table, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InvalidRequestError, PendingRollbackError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox._internal.connections import caller as cursor
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.publish import publish
from faststream_outbox.schema import make_outbox_table
from tests.publish.conftest import Rows, rows
from tests.waiting import eventually

__all__ = ["rows"]

ENVELOPE = Envelope(queue="orders", body=b"{}")


@pytest.fixture
async def begun(driver_engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection in a transaction."""
    async with driver_engine.connect() as connection:
        await connection.begin()
        yield connection


async def test_statement_goes_to_the_cursor_where_nobody_listens(
    driver_engine: AsyncEngine, table: Table, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        pytest.fail("SQLAlchemy ran the statement")

    async with AsyncSession(driver_engine) as session, session.begin():
        await session.connection()
        monkeypatch.setattr(Connection, "exec_driver_sql", refused)
        await publish(session, table, ENVELOPE)
        await publish(session, table, ENVELOPE, ENVELOPE)
    assert len(rows()) == 3


def test_psycopg2_has_notices_to_log_and_suits_not(database_url: URL) -> None:
    engine = create_engine(database_url.set(drivername="postgresql+psycopg2"), poolclass=NullPool)
    with engine.begin() as connection:
        assert not cursor.is_at_once(connection)


@pytest.mark.parametrize("name", ["before_cursor_execute", "after_cursor_execute", "do_execute", "handle_error"])
async def test_engine_with_a_listener_suits_not(driver_engine: AsyncEngine, name: str) -> None:
    event.listen(driver_engine.sync_engine, name, lambda *_: None)
    async with driver_engine.begin() as connection:
        assert not await connection.run_sync(cursor.is_at_once)


async def test_listeners_of_connections_and_of_all_engines_are_heeded(
    driver_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: Any) -> None: ...

    # SQLAlchemy remembers that there was a listener for all engines: what follows here must not.
    monkeypatch.setattr(Engine, "_has_events", False)
    async with driver_engine.begin() as connection:
        assert await connection.run_sync(cursor.is_at_once)
        event.listen(Engine, "after_cursor_execute", nothing)
        assert not await connection.run_sync(cursor.is_at_once)
        event.remove(Engine, "after_cursor_execute", nothing)
        monkeypatch.setattr(Engine, "_has_events", False)
        assert await connection.run_sync(cursor.is_at_once)
        event.listen(connection.sync_connection, "before_cursor_execute", nothing)
        assert not await connection.run_sync(cursor.is_at_once)


async def test_echo_shows_the_statement(
    database_url: URL, table: Table, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    engine = create_async_engine(database_url, poolclass=NullPool, echo=True)
    with caplog.at_level(logging.INFO, "sqlalchemy.engine.Engine"):
        async with engine.begin() as connection:
            await publish(connection, table, ENVELOPE)
    assert any("insert into outbox" in line for line in caplog.messages)
    assert len(rows()) == 1


async def test_connection_that_has_not_begun_is_begun_by_sqlalchemy(
    driver_engine: AsyncEngine, table: Table, rows: Rows
) -> None:
    async with driver_engine.connect() as connection:
        await publish(connection, table, ENVELOPE)
        assert connection.in_transaction()
        await connection.rollback()
        await publish(connection, table, ENVELOPE)
        await connection.commit()
    assert len(rows()) == 1


async def test_ended_savepoint_and_ended_block_are_refused(driver_engine: AsyncEngine, table: Table) -> None:
    async with driver_engine.connect() as connection, connection.begin(), connection.begin_nested() as savepoint:
        await savepoint.rollback()
        with pytest.raises(InvalidRequestError, match="closed transaction inside context manager"):
            await publish(connection, table, ENVELOPE)
    async with driver_engine.connect() as connection, connection.begin() as transaction:
        await transaction.commit()
        with pytest.raises(InvalidRequestError, match="closed transaction inside context manager"):
            await publish(connection, table, ENVELOPE)


WRONG = {
    "no such table": ("select 1 from missing", ()),
    "refused by the server": ("select 1 / $1::int", (0,)),
    "refused by the driver": ("select $1::int", ("text",)),
    "too few values": ("select $1::int", ()),
    "no SQL": ("selectt", ()),
}


@pytest.mark.parametrize("what", WRONG)
async def test_errors_are_those_of_sqlalchemy(begun: AsyncConnection, what: str) -> None:
    sql, values = WRONG[what]
    parameters: Any = values
    if begun.dialect.driver != "asyncpg":
        sql, parameters = sql.replace("$1", "%(one)s"), dict(zip(["one"], values, strict=False))
    known, found = [
        await begun.run_sync(_error, way, sql, parameters) for way in (_by_sqlalchemy, cursor.fetch_at_once)
    ]
    assert found == known
    assert issubclass(found[0], Exception)


def _by_sqlalchemy(connection: Connection, sql: str, parameters: Any) -> Any:
    return connection.exec_driver_sql(sql, parameters).fetchall()


def _error(connection: Connection, way: Any, sql: str, parameters: Any) -> tuple[Any, ...]:
    with pytest.raises(Exception) as raised, connection.begin_nested():  # noqa: PT011 - compared by its caller
        way(connection, sql, parameters)
    error: Any = raised.value
    kept = [getattr(error, name, None) for name in ("statement", "params", "connection_invalidated", "code")]
    return (type(error), type(getattr(error, "orig", None)), str(error), type(error.__cause__), *kept)


async def test_failed_insert_is_caught_as_sqlalchemys_and_shows_no_message(driver_engine: AsyncEngine) -> None:
    missing = make_outbox_table(MetaData(), "missing")
    async with AsyncSession(driver_engine) as session, session.begin():
        with pytest.raises(ProgrammingError, match="missing") as raised:
            async with session.begin_nested():
                await publish(session, missing, Envelope(queue="orders", body=b"secret"))
        assert "secret" not in str(raised.value)
        assert await session.scalar(text("select 1")) == 1


async def test_dead_connection_leaves_the_pool(driver_engine: AsyncEngine, table: Table, rows: Rows) -> None:
    async with AsyncSession(driver_engine) as session:
        pid = await session.scalar(text("select pg_backend_pid()"))
        async with driver_engine.begin() as other:
            await other.execute(text(f"select pg_terminate_backend({pid}, 5000)"))
        with pytest.raises(DBAPIError) as raised:
            await publish(session, table, ENVELOPE)
        assert raised.value.connection_invalidated
        with pytest.raises(PendingRollbackError):
            await publish(session, table, ENVELOPE)
        await session.rollback()
        await publish(session, table, ENVELOPE)
        await session.commit()
    assert len(rows()) == 1


async def test_cancelled_statement_leaves_no_connection_in_the_middle_of_it(
    driver_engine: AsyncEngine, table: Table, rows: Rows
) -> None:
    async with driver_engine.begin() as holder, AsyncSession(driver_engine) as session:
        await holder.execute(text("lock table outbox in exclusive mode"))
        connection = await session.connection()
        publishing = asyncio.create_task(publish(session, table, ENVELOPE))
        await eventually(lambda: _is_waiting(holder))
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        assert connection.invalidated
    async with AsyncSession(driver_engine) as session, session.begin():
        await publish(session, table, ENVELOPE)
    assert len(rows()) == 1


async def _is_waiting(connection: AsyncConnection) -> bool:
    found = await connection.execute(text("select count(*) from pg_locks where not granted"))
    return bool(found.scalar_one())


async def test_statement_that_was_prepared_for_another_schema_fails_once_and_is_prepared_again(
    engine: AsyncEngine, table: Table
) -> None:
    async def write() -> None:
        async with AsyncSession(engine) as session, session.begin():
            await publish(session, table, ENVELOPE)

    async with engine.begin() as connection:
        await connection.execute(text("alter table outbox alter id type integer"))
    await write()
    # SQLAlchemy does not see this change as one, so that what was prepared before it is used once more.
    async with engine.begin() as connection:
        await connection.execute(text("do $$ begin alter table outbox alter id type bigint; end $$"))
    with pytest.raises(DBAPIError, match="cached statement plan is invalid"):
        await write()
    await write()

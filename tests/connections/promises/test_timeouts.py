"""The library's own connections have time limits of their own, whatever a role or a database sets."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from tests.connections.test_dedicated import sql
from tests.publish.ways import plain

pytestmark = pytest.mark.slow

# Long enough to connect on a busy machine: until then, the limits are those of the role.
IMPATIENT = {
    "statement_timeout": "1s",
    "lock_timeout": "1s",
    "idle_in_transaction_session_timeout": "1s",
    "idle_session_timeout": "1s",
    "transaction_timeout": "1s",
}


NAP = sql("select pg_sleep(1.2)")


@pytest.fixture(params=["asyncpg", "psycopg"])
async def engine(request: pytest.FixtureRequest, database_url: URL, server_version: int) -> AsyncIterator[AsyncEngine]:
    """An engine whose sessions may do nothing that takes longer than a moment, as a role may be set up."""
    known = {
        name: value for name, value in IMPATIENT.items() if server_version >= 170000 or "transaction_t" not in name
    }
    options = {"options": " ".join(f"-c {name}={value}" for name, value in known.items())}
    connect_args = {"server_settings": known} if request.param == "asyncpg" else options
    url = database_url.set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url, connect_args=connect_args)
    yield engine
    await engine.dispose()


@pytest.fixture
def server_version(database_url: URL) -> int:
    with psycopg.connect(plain(database_url)) as connection:
        return connection.info.server_version


@asynccontextmanager
async def opened(engine: AsyncEngine, **options: Any) -> AsyncGenerator[DedicatedConnection]:
    """A connection that is open: until it is, the role's limits hold, and this process may stand still."""
    for tries_left in (2, 1, 0):
        connection = DedicatedConnection(engine, **options)
        try:
            await connection.open()
            break
        except Exception:
            if not tries_left:
                raise
    yield connection
    await connection.close()


@pytest.fixture
async def connection(engine: AsyncEngine) -> AsyncIterator[DedicatedConnection]:
    async with opened(engine) as connection:
        yield connection


async def test_a_statement_takes_as_long_as_the_wire_allows(connection: DedicatedConnection) -> None:
    await connection.fetch(NAP, {})
    await connection.fetch(NAP, {})
    assert connection.openings == 1


async def test_a_transaction_of_several_statements_takes_as_long_as_the_wire_allows(
    connection: DedicatedConnection,
) -> None:
    assert len(await connection.fetch_each([(NAP, {}), (NAP, {})])) == 2


async def test_behind_a_pooler_each_transaction_sets_its_limits(connection: DedicatedConnection) -> None:
    """The next transaction may be on a server connection that nothing was set on."""
    await connection.fetch(sql("select 1"), {})
    connection.pooled = connection._explicit = True
    await connection._set_limits(connection._driver, "mine")
    await connection._driver.execute(
        "reset statement_timeout; reset lock_timeout; reset idle_in_transaction_session_timeout"
    )
    await connection.fetch(NAP, {})
    assert len(await connection.fetch_each([(NAP, {}), (NAP, {})])) == 2
    assert connection.openings == 1


async def test_behind_a_pooler_each_transaction_has_its_name(connection: DedicatedConnection) -> None:
    name = sql("select current_setting('application_name')")
    await connection.fetch(name, {})
    await connection._driver.execute("set application_name = 'of another client'")
    connection.pooled = connection._explicit = True
    await connection._set_limits(connection._driver, r"it's \ mine")
    assert [tuple(row) for row in await connection.fetch(name, {})] == [(r"it's \ mine",)]
    connection._explicit = False
    assert [tuple(row) for row in await connection.fetch(name, {})] == [("of another client",)]


async def test_an_idle_connection_is_not_closed_by_the_server(connection: DedicatedConnection) -> None:
    setting = sql("select current_setting('idle_session_timeout')")
    assert [tuple(row) for row in await connection.fetch(setting, {})] == [("0",)]


async def test_the_server_gives_a_statement_up_when_the_wire_does(engine: AsyncEngine) -> None:
    async with opened(engine, timeout=45.0) as connection:
        rows = await connection.fetch(sql("select current_setting('statement_timeout')"), {})
    assert [tuple(row) for row in rows] == [("46s",)]

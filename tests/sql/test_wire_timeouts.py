"""The library's own connections have time limits of their own, whatever a role or a database sets."""

from collections.abc import AsyncIterator

import psycopg
import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox.schema.names import Names
from faststream_outbox.sql import Statement, _compiled
from faststream_outbox.sql.wire import Wire
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


def sql(body: str) -> Statement:
    return _compiled("test", "A statement of a test.", body, Names("outbox", None, "unused"))


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


@pytest.fixture
async def wire(engine: AsyncEngine) -> AsyncIterator[Wire]:
    wire = Wire(engine)
    yield wire
    await wire.close()


async def test_a_statement_takes_as_long_as_the_wire_allows(wire: Wire) -> None:
    await wire.fetch(NAP, {})
    await wire.fetch(NAP, {})
    assert wire.openings == 1


async def test_a_transaction_of_several_statements_takes_as_long_as_the_wire_allows(wire: Wire) -> None:
    assert len(await wire.fetch_each([(NAP, {}), (NAP, {})])) == 2


async def test_behind_a_pooler_each_transaction_sets_its_limits(wire: Wire) -> None:
    """The next transaction may be on a server connection that nothing was set on."""
    await wire.fetch(sql("select 1"), {})
    wire.pooled = wire._explicit = True
    await wire._set_limits(wire._driver)
    await wire._driver.execute("reset statement_timeout; reset lock_timeout; reset idle_in_transaction_session_timeout")
    await wire.fetch(NAP, {})
    assert len(await wire.fetch_each([(NAP, {}), (NAP, {})])) == 2
    assert wire.openings == 1


async def test_an_idle_connection_is_not_closed_by_the_server(wire: Wire) -> None:
    setting = sql("select current_setting('idle_session_timeout')")
    assert [tuple(row) for row in await wire.fetch(setting, {})] == [("0",)]


async def test_the_server_gives_a_statement_up_when_the_wire_does(engine: AsyncEngine) -> None:
    wire = Wire(engine, timeout=45.0)
    rows = await wire.fetch(sql("select current_setting('statement_timeout')"), {})
    await wire.close()
    assert [tuple(row) for row in rows] == [("46s",)]

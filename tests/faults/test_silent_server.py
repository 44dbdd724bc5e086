"""A server that falls silent in the middle of a transaction keeps nobody longer than the statement's timeout.

asyncpg ends a transaction block with a ROLLBACK, and waits before that for a cancel request to be answered.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.sql.statements import Statement
from tests.faults.proxy import Proxy, Way

pytestmark = pytest.mark.faults

ONE = Statement("one", "", "select 1", "select 1", ())


@pytest.fixture(params=["asyncpg", "psycopg"])
async def far_engine(request: pytest.FixtureRequest, database_url: URL, proxy: Proxy) -> AsyncIterator[AsyncEngine]:
    """An engine whose connections go through the proxy, with an isolation level that every statement has to undo."""
    settings: dict[str, Any] = {
        "asyncpg": {"server_settings": {"default_transaction_isolation": "repeatable read"}},
        "psycopg": {"options": "-c default_transaction_isolation=repeatable\\ read"},
    }
    url = database_url.set(drivername=f"postgresql+{request.param}", port=proxy.port)
    engine = create_async_engine(url, connect_args=settings[request.param])
    yield engine
    proxy.cut()
    await engine.dispose()


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> list[str]:
    """The statement after whose BEGIN the server falls silent, when one is put in here."""
    asked: list[str] = []

    def heard(ask: Any) -> Any:
        async def asking(connection: Any, query: Any, *args: Any, **options: Any) -> Any:
            if asked and asked[0] in str(query):
                proxy.way = Way.BLACK_HOLE
            return await ask(connection, query, *args, **options)

        return asking

    for of, method in (
        (asyncpg.Connection, "prepare"),
        (asyncpg.Connection, "fetch"),
        (psycopg.AsyncConnection, "execute"),
    ):
        monkeypatch.setattr(of, method, heard(getattr(of, method)))
    return asked


async def test_statement_is_given_up_in_time(far_engine: AsyncEngine, silence: list[str]) -> None:
    connection = DedicatedConnection(far_engine, timeout=3.0)
    await connection.fetch(ONE, {})
    silence.append(ONE.dollar)
    async with asyncio.timeout(30):
        with pytest.raises(TimeoutError):
            await connection.fetch(ONE, {})


async def test_connection_that_is_being_made_is_given_up_in_time(far_engine: AsyncEngine, silence: list[str]) -> None:
    connection = DedicatedConnection(far_engine, timeout=3.0)
    silence.append("pg_is_in_recovery")
    async with asyncio.timeout(30):
        with pytest.raises(TimeoutError):
            await connection.open()

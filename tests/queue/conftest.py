"""A rig on each driver, and a look at the statements that clients send."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.queue import renewer
from faststream_outbox._internal.sql.statements import Statement
from tests.queue.rig import Rig


@pytest.fixture
async def rig(engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Rig]:
    """A client on asyncpg."""
    rig = Rig(engine, table, dlq_table)
    yield rig
    await rig.close()


@pytest.fixture
async def driver_rig(driver_engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Rig]:
    """A client on each of the drivers in turn."""
    rig = Rig(driver_engine, table, dlq_table)
    yield rig
    await rig.close()


@pytest.fixture
async def named_engine(database_url: URL) -> AsyncIterator[AsyncEngine]:
    """An engine whose connections are known to the server as `under_test`."""
    named = {"application_name": "under_test"}
    engine = create_async_engine(database_url, connect_args={"server_settings": named})
    yield engine
    await engine.dispose()


@pytest.fixture
def renewed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of a minute is renewed after a fifth of a second: no pause of the machine ends it."""
    monkeypatch.setattr(renewer, "FRACTION", 300)


Send = Callable[[], Awaitable[Any]]
Intercept = Callable[[Callable[[str, Mapping[str, Any], Send], Awaitable[Any]]], object]


@pytest.fixture
def intercept(monkeypatch: pytest.MonkeyPatch) -> Intercept:
    """Has a function stand before the clients' own connections: it is given a statement's name, its values, and the way
    to send it."""

    def intercept(step: Callable[[str, Mapping[str, Any], Send], Awaitable[Any]]) -> None:
        fetch = DedicatedConnection.fetch

        async def passed(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
            return await step(statement.name, values, partial(fetch, connection, statement, values))

        monkeypatch.setattr(DedicatedConnection, "fetch", passed)

    return intercept


@pytest.fixture
def sent(intercept: Intercept) -> list[str]:
    """The names of the statements that the clients' own connections have sent since."""
    names: list[str] = []

    @intercept
    async def recorded(name: str, values: Mapping[str, Any], send: Send) -> Any:
        names.append(name)
        return await send()

    return names

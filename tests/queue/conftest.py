"""A rig on each driver, and a look at the statements that clients send."""

from collections.abc import AsyncIterator
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


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that the clients' own connections have sent since."""
    names: list[str] = []
    fetch = DedicatedConnection.fetch

    async def recorded(connection: DedicatedConnection, statement: Statement, values: Any) -> Any:
        names.append(statement.name)
        return await fetch(connection, statement, values)

    monkeypatch.setattr(DedicatedConnection, "fetch", recorded)
    return names

"""A rig on each driver, and a look at the statements that clients send."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.sql import Statement
from faststream_outbox.sql.wire import Wire
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
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements that the clients' own connections have sent since."""
    names: list[str] = []
    fetch = Wire.fetch

    async def recorded(wire: Wire, statement: Statement, values: Any) -> Any:
        names.append(statement.name)
        return await fetch(wire, statement, values)

    monkeypatch.setattr(Wire, "fetch", recorded)
    return names

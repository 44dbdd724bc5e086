"""PostgreSQL and the tables in memory, side by side."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.memory.two_tables import Two


@pytest.fixture
async def two(engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Two]:
    """Two empty outboxes."""
    two = Two(engine, table, dlq_table)
    yield two
    await two.connection.close()

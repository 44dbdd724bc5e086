"""An application with a table of its own; PostgreSQL and the tables in memory, side by side."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import BigInteger, Column, Engine, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.broker.effects import EffectsShop
from tests.broker.two_tables import Two
from tests.tables import existing


@pytest.fixture
def effects(metadata: MetaData, builder: Engine) -> Iterator[Table]:
    """A table of the application."""
    table = Table("effects", metadata, Column("number", BigInteger, primary_key=True))
    with existing(table, builder):
        yield table


@pytest.fixture
async def shop(engine: AsyncEngine, table: Table, dlq_table: Table, effects: Table) -> AsyncIterator[EffectsShop]:
    shop = EffectsShop(engine, (table, dlq_table), effects)
    yield shop
    await shop.broker.stop()


@pytest.fixture
async def two(engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Two]:
    """Two empty outboxes."""
    two = Two(engine, table, dlq_table)
    yield two
    await two.wire.close()

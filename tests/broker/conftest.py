"""An application with a table of its own: with queues, or with queues and topics."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import BigInteger, Column, Engine, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.schema.log_tables import LogTables, make_log_tables
from tests.broker.effects import EffectsShop
from tests.broker.topics.stage import Stage
from tests.tables import all_existing, existing


@pytest.fixture
def effects(metadata: MetaData, builder: Engine) -> Iterator[Table]:
    """A table of the application."""
    table = Table("effects", metadata, Column("number", BigInteger, primary_key=True))
    with existing(table, builder):
        yield table


@pytest.fixture
def log_tables(metadata: MetaData, builder: Engine) -> Iterator[LogTables]:
    """The log's tables, there for one test."""
    tables = make_log_tables(metadata, "outbox_log")
    with all_existing(tables.all, builder):
        yield tables


@pytest.fixture
async def shop(engine: AsyncEngine, table: Table, dlq_table: Table, effects: Table) -> AsyncIterator[EffectsShop]:
    """Queues alone."""
    shop = EffectsShop(engine, (table, dlq_table), effects)
    yield shop
    await shop.broker.stop()


@pytest.fixture
async def stage(
    engine: AsyncEngine, table: Table, dlq_table: Table, log_tables: LogTables, effects: Table
) -> AsyncIterator[Stage]:
    """Queues and topics."""
    stage = Stage(engine, (table, dlq_table), log_tables, effects)
    yield stage
    await stage.close()

"""An application with queues, topics and a table of its own."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import Engine, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.schema.log_tables import LogTables, make_log_tables
from tests.broker.topics.stage import Stage
from tests.tables import all_existing


@pytest.fixture
def log_tables(metadata: MetaData, builder: Engine) -> Iterator[LogTables]:
    """The log's tables, there for one test."""
    tables = make_log_tables(metadata, "outbox_log")
    with all_existing(tables.all, builder):
        yield tables


@pytest.fixture
async def stage(
    engine: AsyncEngine, table: Table, dlq_table: Table, log_tables: LogTables, effects: Table
) -> AsyncIterator[Stage]:
    stage = Stage(engine, (table, dlq_table), log_tables, effects)
    yield stage
    await stage.close()

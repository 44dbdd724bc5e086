"""A broker with queues and topics."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import Engine, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.schema.log_tables import LogTables, make_log_tables
from tests.tables import all_existing


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes its time on a busy machine is well."""
    monkeypatch.setattr("faststream_outbox._internal.health.readiness.ANSWER_SECONDS", 60.0)


@pytest.fixture
def log_tables(metadata: MetaData, builder: Engine) -> Iterator[LogTables]:
    tables = make_log_tables(metadata, "outbox_log")
    with all_existing(tables.all, builder):
        yield tables


@pytest.fixture
async def broker(
    engine: AsyncEngine, table: Table, dlq_table: Table, log_tables: LogTables
) -> AsyncIterator[OutboxBroker]:
    """Has a handler for a queue and one for a topic; not started."""
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=dlq_table, log_tables=log_tables, logger=None)

    @broker.subscriber("orders")
    async def handle(body: int) -> None: ...

    @broker.subscriber(topic="orders", group="billing")
    async def bill(body: int) -> None: ...

    yield broker
    await broker.stop()

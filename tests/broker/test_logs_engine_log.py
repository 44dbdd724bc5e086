"""What the engines report goes to the broker's logger: with fields, with what to do, and with one line at the end."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker, events, make_outbox_table
from faststream_outbox._internal.schema.log_tables import LogTables, make_log_tables
from tests.waiting import eventually

QUEUE_ROLES = {"scan", "watch"}
TOPIC_ROLES = {"sequencing", "reading"}


class Tables:
    """Tables that are not there yet."""

    def __init__(self, builder: Engine) -> None:
        self._builder = builder
        self.metadata = MetaData()
        self.outbox: Table = make_outbox_table(self.metadata, "late_outbox")
        self.log: LogTables = make_log_tables(self.metadata, "late_log")

    def create(self) -> None:
        self.metadata.create_all(self._builder)

    def drop(self) -> None:
        self.metadata.drop_all(self._builder)


@pytest.fixture
def tables(builder: Engine) -> Iterator[Tables]:
    tables = Tables(builder)
    yield tables
    tables.drop()


def roles(caplog: pytest.LogCaptureFixture, kind: str) -> set[str]:
    found: list[Any] = [record.__dict__ for record in caplog.records if record.name == "shop"]
    return {each["outbox_role"] for each in found if each.get("outbox_event") == kind}


async def test_missing_tables_are_said_with_the_migration_and_then_that_all_works(
    engine: AsyncEngine, tables: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shop")
    broker = OutboxBroker(
        engine,
        outbox_table=tables.outbox,
        dlq_table=None,
        log_tables=tables.log,
        logger=logging.getLogger("shop"),
    )

    @broker.subscriber("orders")
    async def handle(body: int) -> None: ...

    @broker.subscriber(topic="orders", group="billing")
    async def bill(body: int) -> None: ...

    await broker.start()
    try:
        await eventually(lambda: roles(caplog, "StatementFailed") >= QUEUE_ROLES | TOPIC_ROLES)
        (first,) = [record for record in caplog.records if record.__dict__.get("outbox_role") == "scan"]
        assert (first.levelno, first.__dict__["outbox_sqlstate"]) == (logging.WARNING, "42P01")
        assert "alembic upgrade head" in first.getMessage()
        tables.create()
        await eventually(lambda: roles(caplog, "StatementWorks") >= QUEUE_ROLES | TOPIC_ROLES)
    finally:
        await broker.stop()


@pytest.mark.parametrize("is_asked_for", [False, True])
async def test_event_has_its_own_columns_and_what_must_be_seen_is_seen_without_an_access_log(
    engine: AsyncEngine, table: Table, caplog: pytest.LogCaptureFixture, *, is_asked_for: bool
) -> None:
    logger = logging.getLogger("shop") if is_asked_for else None
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=logger)
    await broker.start()
    broker.client.events.emit(events.MessageSetApart("orders", 17, ValueError("no")))
    await broker.stop()
    (record,) = caplog.records
    assert record.name == ("shop" if is_asked_for else "faststream_outbox")
    if is_asked_for:
        found = record.__dict__
        assert (found["queue"], found["message_id"], found["outbox_id"]) == ("orders", "", 17)

"""Checking the schema: only when asked, and never in the way of migrations."""

import asyncio

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker, make_outbox_table
from tests.contract.outside import App
from tests.contract.running import run

VALIDATING = """\
await broker.validate_schema()  # raises if user's table drifts from expected columns
"""


async def test_a_table_as_it_should_be_passes(broker: OutboxBroker) -> None:
    await run(VALIDATING, {"broker": broker})


async def test_a_missing_column_raises_and_is_named(app: App) -> None:
    app.sql("alter table outbox drop column last_attempt_at")
    with pytest.raises(RuntimeError, match="last_attempt_at"):
        await run(VALIDATING, {"broker": app.broker})


async def test_a_missing_unique_index_of_timers_raises_and_is_named(app: App) -> None:
    app.sql("drop index outbox_timer_id_uq")
    with pytest.raises(RuntimeError, match="timer_id_uq"):
        await run(VALIDATING, {"broker": app.broker})


async def test_a_broker_starts_before_its_table_exists_and_consumes_once_it_does(engine: AsyncEngine) -> None:
    metadata = MetaData()
    broker = OutboxBroker(engine, outbox_table=make_outbox_table(metadata, table_name="outbox_later"))
    handled = asyncio.Event()

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        handled.set()

    await broker.start()
    try:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        async with AsyncSession(engine) as session, session.begin():
            await broker.publish(1, queue="orders", session=session)
        async with asyncio.timeout(20):
            await handled.wait()
    finally:
        await broker.stop()
        async with engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)

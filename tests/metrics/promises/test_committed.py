"""A message counts as published once it is committed, and not if it is rolled back."""

from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import Engine, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox import OutboxBroker, TestOutboxBroker
from faststream_outbox._internal.schema.log_tables import LogTables, make_log_tables
from tests.metrics.readings import PrometheusReading
from tests.tables import all_existing

PLACES = [{"queue": "orders"}, {"topic": "orders"}]


class Shop:
    def __init__(self, engine: AsyncEngine, table: Table, log_tables: LogTables) -> None:
        self.reading = PrometheusReading()
        self.broker = OutboxBroker(
            engine,
            outbox_table=table,
            dlq_table=None,
            log_tables=log_tables,
            logger=None,
            metrics_recorder=self.reading.recorder,
        )

    @property
    def published(self) -> float:
        return self.reading.bus("published_messages_total", destination="orders", status="success")


@pytest.fixture
def log_tables(metadata: MetaData, builder: Engine) -> Iterator[LogTables]:
    tables = make_log_tables(metadata, "outbox_log")
    with all_existing(tables.all, builder):
        yield tables


@pytest.fixture
async def shop(engine: AsyncEngine, table: Table, log_tables: LogTables) -> AsyncIterator[Shop]:
    shop = Shop(engine, table, log_tables)
    yield shop
    await shop.broker.stop()


@pytest.mark.parametrize("place", PLACES, ids=["queue", "topic"])
async def test_what_is_rolled_back_is_not_counted(shop: Shop, engine: AsyncEngine, place: dict[str, str]) -> None:
    async with AsyncSession(engine) as session:
        await shop.broker.publish(1, **place, session=session)
        assert shop.published == 0
        await session.rollback()
        await shop.broker.publish(2, **place, session=session)
        await session.commit()
    assert shop.published == 1


@pytest.mark.parametrize("place", PLACES, ids=["queue", "topic"])
async def test_what_goes_with_a_savepoint_is_not_counted(
    shop: Shop, engine: AsyncEngine, place: dict[str, str]
) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await shop.broker.publish(1, **place, session=session)
        async with session.begin_nested():
            await shop.broker.publish(2, **place, session=session)
        outer = await session.begin_nested()
        async with session.begin_nested():
            await shop.broker.publish(3, **place, session=session)
        await outer.rollback()
        assert shop.published == 0
    assert shop.published == 2


def test_so_it_is_without_an_event_loop(shop: Shop, sync_engine: Engine) -> None:
    with Session(sync_engine) as session:
        shop.broker.publish_sync(1, "orders", session=session)
        session.rollback()
        shop.broker.publish_sync(2, "orders", session=session)
        shop.broker.publish_sync(3, topic="orders", session=session)
        assert shop.published == 0
        session.commit()
    assert shop.published == 2


async def test_a_timer_that_was_there_is_not_published_again(shop: Shop, engine: AsyncEngine) -> None:
    async with AsyncSession(engine) as session, session.begin():
        for _ in range(2):
            await shop.broker.publish(1, "orders", timer_id="a", session=session)
    assert shop.published == 1


async def test_so_it_is_under_the_test_broker(shop: Shop, engine: AsyncEngine) -> None:
    async with TestOutboxBroker(shop.broker, run_loops=True), AsyncSession(engine) as session:
        await shop.broker.publish(1, "orders", session=session)
        await session.rollback()
        await shop.broker.publish(2, "orders", session=session)
        assert shop.published == 0
        await session.commit()
        assert shop.published == 1

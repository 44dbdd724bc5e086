"""Brokers with topics in other settings: schemas, small pools, no LISTEN, handlers that feed their own topic."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import URL, MetaData, NullPool, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import NoRetry, OutboxBroker, make_outbox_table
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from faststream_outbox.log import make_log_tables
from tests.broker.topics.stage import Stage
from tests.waiting import eventually


@asynccontextmanager
async def made(metadata: MetaData, engine: AsyncEngine) -> AsyncGenerator[None, None]:
    """Tables that are there for the length of a block."""
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    try:
        yield
    finally:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)


@pytest.fixture
async def schema(engine: AsyncEngine) -> AsyncIterator[str]:
    """A schema of its own, there for one test."""
    async with engine.begin() as connection:
        await connection.execute(text('create schema "my shop"'))
    yield "my shop"
    async with engine.begin() as connection:
        await connection.execute(text('drop schema "my shop" cascade'))


async def publish(broker: OutboxBroker, engine: AsyncEngine, *bodies: int) -> None:
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish_batch(*bodies, topic="orders", key="order-1", session=session)


async def test_tables_may_live_in_a_schema(engine: AsyncEngine, schema: str) -> None:
    metadata = MetaData(schema=schema)
    outbox_table, log_tables = make_outbox_table(metadata), make_log_tables(metadata, "outbox_log")
    broker = OutboxBroker(engine, outbox_table=outbox_table, dlq_table=None, log_tables=log_tables, logger=None)
    seen: list[int] = []

    @broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int, outbox: BrokerOfHandler) -> None:
        seen.append(body)
        await outbox.publish(body + 1, topic="bills")

    @broker.subscriber(topic="bills", group="mail")
    async def mail(body: int) -> None:
        seen.append(body)

    async with made(metadata, engine), broker:
        await broker.start()
        await publish(broker, engine, 1)
        await eventually(lambda: seen == [1, 2])


@pytest.mark.parametrize("pool", [{"pool_size": 1, "max_overflow": 0, "pool_timeout": 2}, {"poolclass": NullPool}])
async def test_pool_may_be_small(stage: Stage, database_url: URL, pool: dict[str, Any]) -> None:
    """A transactional handler has the only connection of the pool; the engine's own are not from there."""
    engine = create_async_engine(database_url, **pool)
    broker = stage.replace(engine=engine)
    stage.writes(retry_strategy=NoRetry())
    await stage.play(*range(10), keys=[str(number) for number in range(10)])
    await stage.caught_up()
    assert await stage.effect_numbers() == [*range(10)]
    await broker.stop()
    await engine.dispose()


async def test_messages_of_others_are_found_without_listening(stage: Stage) -> None:
    reader = stage.another(listen=False)
    stage.reads(broker=reader, min_fetch_interval=0.1)
    await reader.start()
    await stage.publish(1, key="order-1")
    assert await stage.saw(1) == [1]


@pytest.mark.parametrize("transactional", [True, False])
async def test_handler_may_publish_to_the_topic_that_it_reads(stage: Stage, transactional: bool) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=transactional)
    async def handle(body: int) -> None:
        stage.seen.append(body)
        if body < 5:
            async with AsyncSession(stage.engine) as own, own.begin():
                session = None if transactional else own
                await stage.broker.publish(body + 1, topic="orders", key="order-1", session=session)

    await stage.play(1, key="order-1")
    await stage.saw(5)
    await stage.caught_up()
    assert stage.seen == [1, 2, 3, 4, 5]


async def test_two_applications_have_logs_of_their_own(stage: Stage) -> None:
    """The same topic and group in another log of the same database are something else."""
    metadata = MetaData()
    broker = stage.another(log_tables=make_log_tables(metadata, "other_log", "other_offsets"))
    stage.reads(broker=broker, notes=lambda body, _: ("other", body))
    stage.reads(notes=lambda body, _: ("own", body))
    async with made(metadata, stage.engine):
        await broker.start()
        await stage.play(1, key="order-1")
        await publish(broker, stage.engine, 2)
        await stage.saw(2)
        await broker.stop()
        await stage.caught_up()
    assert sorted(stage.seen) == [("other", 2), ("own", 1)]


async def test_messages_of_a_partitioned_log_arrive(stage: Stage) -> None:
    metadata = MetaData()
    broker = stage.another(log_tables=make_log_tables(metadata, "parted_log", "parted_offsets", partitioned=True))
    stage.writes(broker=broker)
    async with made(metadata, stage.engine):
        await stage.sql("create table parted_log_1 partition of parted_log default")
        await broker.start()
        await publish(broker, stage.engine, 1, 2)
        await publish(broker, stage.engine, 3)
        await stage.wrote(1, 2, 3)
        await broker.stop()

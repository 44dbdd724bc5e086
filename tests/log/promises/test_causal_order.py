"""What one transaction did after another is delivered after it, also where it began to write before it."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, delivered, drain
from tests.waiting import eventually

URI = "kafka://orders/order-1"
WRITERS, AGGREGATES, TRANSACTIONS = 6, 5, 15


@pytest.fixture
async def aggregates(engine: AsyncEngine) -> AsyncIterator[None]:
    """Rows to lock: as an application keeps the version of what it publishes about."""
    async with engine.begin() as connection:
        await connection.execute(text("create table aggregate (id int primary key, version int not null)"))
        await connection.execute(
            text("insert into aggregate select n, 0 from generate_series(1, :count) n"), {"count": AGGREGATES}
        )
    yield
    async with engine.begin() as connection:
        await connection.execute(text("drop table aggregate"))


async def _next_version(connection: AsyncConnection, aggregate: int) -> int:
    sql = "update aggregate set version = version + 1 where id = :id returning version"
    return int((await connection.execute(text(sql), {"id": aggregate})).scalar_one())


@pytest.mark.usefixtures("aggregates")
async def test_the_version_that_came_later_is_delivered_later_although_its_transaction_wrote_first(
    engine: AsyncEngine, outbox: Outbox
) -> None:
    async with engine.connect() as early, engine.connect() as late:
        # Any write gives it its transaction id, before the other one has its own.
        await early.execute(text("insert into aggregate values (100, 0)"))
        version = await _next_version(late, 1)
        await outbox.publish(late, OutboxMessage(URI, version))
        await late.commit()
        version = await _next_version(early, 1)
        await outbox.publish(early, OutboxMessage(URI, version))
        await early.commit()
    collector = Collector()
    await drain(outbox, collector, "broker")
    assert collector.payloads == [1, 2]
    first, second = (message.transaction_id or 0 for message in collector.messages)
    assert first > second, "the order of transactions was not what this is about"


@pytest.mark.usefixtures("aggregates")
async def test_what_is_seen_late_is_delivered_before_what_was_published_because_of_it(
    engine: AsyncEngine, outbox: Outbox
) -> None:
    async with engine.connect() as slow:
        version = await _next_version(slow, 1)
        await outbox.publish(slow, OutboxMessage(URI, version))
        async with engine.begin() as other:
            await outbox.publish(other, OutboxMessage("kafka://orders/order-2", "other"))
        # The slow one's number is a gap by now, and the other's message is handed out.
        assert await delivered(outbox, "broker") == ["other"]
        await slow.commit()
    async with engine.begin() as next_one:
        version = await _next_version(next_one, 1)
        await outbox.publish(next_one, OutboxMessage(URI, version))
    assert await delivered(outbox, "broker") == [1, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("aggregates")
async def test_versions_of_every_aggregate_arrive_in_order_from_many_writers(
    engine: AsyncEngine, outbox: Outbox
) -> None:
    chance = random.Random(4)
    plans = [
        [(chance.randint(1, AGGREGATES), chance.random() * 0.01, chance.random() < 0.1) for _ in range(TRANSACTIONS)]
        for _ in range(WRITERS)
    ]
    published: list[tuple[int, int]] = []

    async def write(number: int) -> None:
        for aggregate, pause, is_rolled_back in plans[number]:
            async with engine.connect() as connection:
                if pause > 0.005:
                    await connection.execute(text("update aggregate set version = version where id = -1"))
                    await connection.execute(text("select pg_current_xact_id()"))
                version = await _next_version(connection, aggregate)
                await outbox.publish(connection, OutboxMessage(f"kafka://orders/{aggregate}", version))
                await asyncio.sleep(pause)
                if is_rolled_back:
                    await connection.rollback()
                else:
                    await connection.commit()
                    published.append((aggregate, version))

    collector, stop = Collector(), asyncio.Event()
    reading = asyncio.create_task(outbox.run(collector, "broker", concurrency=2, stop_event=stop))
    await asyncio.gather(*(write(number) for number in range(WRITERS)))
    await eventually(lambda: len(collector.messages) >= len(published))
    stop.set()
    await reading
    for aggregate in range(1, AGGREGATES + 1):
        versions = sorted(version for number, version in published if number == aggregate)
        assert collector.of(f"kafka://orders/{aggregate}") == versions


async def test_publishers_of_one_key_follow_each_other_where_that_is_asked_for(engine: AsyncEngine) -> None:
    """Without a lock of the application's own, numbers and commits of one key may cross; the option forbids it."""
    outbox = Outbox(engine, strict_key_order=True)
    await outbox.setup()
    try:
        async with engine.connect() as first, engine.connect() as second:
            await outbox.publish(first, OutboxMessage(URI, 1))
            waiting = asyncio.create_task(outbox.publish(second, OutboxMessage(URI, 2)))
            # A publisher of another key does not wait.
            async with engine.begin() as other:
                await asyncio.wait_for(outbox.publish(other, OutboxMessage("kafka://orders/order-2", "other")), 30)
            assert not waiting.done()
            await first.commit()
            await asyncio.wait_for(waiting, 30)
            await second.commit()
        collector = Collector()
        await drain(outbox, collector, "broker")
        assert collector.of(URI) == [1, 2]
    finally:
        await outbox.cleanup()
        async with engine.begin() as connection:
            await connection.run_sync(outbox.tables.log.metadata.drop_all)

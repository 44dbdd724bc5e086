"""The log on asyncpg and on psycopg: the same with each, also where the database defaults to stricter isolation."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker

from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, ask, delivered, drain, opened, put
from tests.waiting import eventually

URI = "kafka://orders"


@pytest.fixture
async def outbox(driver_engine: AsyncEngine) -> AsyncIterator[Outbox]:
    async with opened(driver_engine) as outbox:
        yield outbox


@pytest.mark.slow
async def test_a_failed_message_is_kept_with_its_error_and_comes_again(outbox: Outbox) -> None:
    calls: list[int] = []

    async def fail_once(message: OutboxMessage) -> None:
        calls.append(message.payload)
        if len(calls) == 1:
            raise ValueError("% { é \x00 \ud800")

    await put(outbox, URI, 1, 2)
    done = await outbox.dispatch(fail_once, "broker")
    assert (done.handled, len(done.failures), done.passed) == (0, 1, 1)
    first, second = await outbox.parked.list("broker", state=None)
    assert (first.state, second.state, first.attempts) == ("retry", "deferred", 1)
    assert "ValueError" in (first.error_type or "")

    async def are_done() -> bool:
        await outbox.dispatch(fail_once, "broker")
        return calls == [1, 1, 2]

    await eventually(are_done)
    assert await outbox.parked.list("broker", state=None) == []


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_publisher_may_use_any_isolation(outbox: Outbox, level: str) -> None:
    strict = outbox.engine.execution_options(isolation_level=level)
    pool = async_sessionmaker(strict)
    async with pool() as slow:
        await outbox.publish(slow, OutboxMessage(URI, "slow"))
        async with pool.begin() as quick:
            await outbox.publish(quick, OutboxMessage(URI, "quick"))
        assert await delivered(outbox, "broker") == ["quick"]
        await slow.commit()
    assert await delivered(outbox, "broker") == ["slow"]


@pytest.mark.slow
async def test_a_database_that_defaults_to_serializable_is_read_all_the_same(
    driver_engine: AsyncEngine, outbox: Outbox
) -> None:
    name = driver_engine.url.database
    await ask(driver_engine, f"alter database {name} set default_transaction_isolation = 'serializable'")
    try:
        # A setting of a database counts for connections that come after it.
        await driver_engine.dispose()
        await outbox.cleanup()
        one, other = outbox, Outbox(driver_engine)
        collector = Collector()
        for number in range(5):
            await put(one, URI, number)
            await asyncio.gather(one.dispatch(collector, "broker"), other.dispatch(Collector(), "other"))
        await drain(one, collector, "broker")
        await other.cleanup()
        assert collector.payloads == list(range(5))
    finally:
        await ask(driver_engine, f"alter database {name} reset default_transaction_isolation")
        await driver_engine.dispose()

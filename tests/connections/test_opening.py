"""Whoever is cancelled while a connection opens leaves none behind."""

from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.opening import connected
from tests.connections.test_dedicated import backends, cancelled_while_it_connects
from tests.waiting import eventually


async def test_cancelled_while_it_connects(driver_engine: AsyncEngine, database_url: URL) -> None:
    async def ask() -> None:
        async with connected(driver_engine) as connection:
            await connection.execute(text("select 1"))

    before = backends(database_url)
    await cancelled_while_it_connects(driver_engine, ask())
    await driver_engine.dispose()
    await eventually(lambda: backends(database_url) <= before)


async def test_closed_after_the_block(driver_engine: AsyncEngine) -> None:
    async with connected(driver_engine) as connection:
        assert await connection.scalar(text("select 1")) == 1
    assert connection.closed

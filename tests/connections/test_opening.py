"""Whoever is cancelled while a connection opens leaves none behind."""

import asyncio
from typing import Any

from sqlalchemy import URL, event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.opening import connected
from tests.connections.test_dedicated import backends
from tests.waiting import eventually


async def test_cancelled_while_it_connects(driver_engine: AsyncEngine, database_url: URL) -> None:
    def cancel_in_the_midst(connection: Any, _: object) -> None:
        asking.cancel()
        cursor = connection.cursor()
        cursor.execute("select 1")
        cursor.close()

    async def ask() -> None:
        async with connected(driver_engine) as connection:
            await connection.execute(text("select 1"))

    event.listen(driver_engine.sync_engine, "connect", cancel_in_the_midst)
    before = backends(database_url)
    asking = asyncio.create_task(ask())
    await asyncio.wait([asking])
    assert asking.cancelled()
    await driver_engine.dispose()
    await eventually(lambda: backends(database_url) <= before)


async def test_closed_after_the_block(driver_engine: AsyncEngine) -> None:
    async with connected(driver_engine) as connection:
        assert await connection.scalar(text("select 1")) == 1
    assert connection.closed

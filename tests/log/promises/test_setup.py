"""`setup()` by many processes at once, on an empty database and on one that has the tables."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from sqlalchemy import URL, MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox.log import Outbox, make_log_tables
from tests.log.opened import delivered, opened, put

PROCESSES = 6


@pytest.fixture
async def schema(engine: AsyncEngine) -> AsyncIterator[str]:
    """A schema in which there is nothing."""
    name = f"s{uuid4().hex[:8]}"
    async with engine.begin() as connection:
        await connection.execute(text(f"create schema {name}"))
    yield name
    async with engine.begin() as connection:
        await connection.execute(text(f"drop schema {name} cascade"))


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
async def test_many_that_set_up_an_empty_database_all_succeed(database_url: URL, schema: str, isolation: str) -> None:
    engines = [create_async_engine(database_url, isolation_level=isolation) for _ in range(PROCESSES)]
    outboxes = [Outbox(engine, schema=schema) for engine in engines]
    try:
        for again in range(2):
            await asyncio.gather(*(outbox.setup() for outbox in outboxes))
            await put(outboxes[again], "k", again)
            assert await delivered(outboxes[0], "g") == [again]
        await outboxes[0].validate_schema()
    finally:
        for outbox in outboxes:
            await outbox.cleanup()
            await outbox.engine.dispose()


async def test_many_that_make_partitions_all_succeed(engine: AsyncEngine) -> None:
    tables = make_log_tables(MetaData(), partitioned=True)
    async with opened(engine, tables=tables) as outbox:
        made = await asyncio.gather(*(outbox.partitions(10).ensure(ahead=2) for _ in range(4)))
        assert sorted(name for names in made for name in names) == ["outbox_p0", "outbox_p1", "outbox_p2"]

"""Publishing through whatever pool the engine has, with savepoints, and where each statement commits by itself."""

from collections.abc import AsyncIterator
from itertools import product
from typing import Any

import pytest
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool, StaticPool

from faststream_outbox.log import OutboxMessage
from faststream_outbox.publish import cancel_timer, publish
from tests.log.opened import delivered, opened
from tests.publish.conftest import Rows
from tests.publish.ways import message

POOLS: dict[str, dict[str, Any]] = {
    "no pool": {"poolclass": NullPool},
    "one connection for all": {"poolclass": StaticPool},
    "a pool of one": {"poolclass": AsyncAdaptedQueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": 5},
}


@pytest.fixture(params=product(POOLS, ["asyncpg", "psycopg"]), ids=" ".join)
async def pooled(request: pytest.FixtureRequest, database_url: URL) -> AsyncIterator[AsyncEngine]:
    """An engine with each kind of pool, on each driver."""
    pool, driver = request.param
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{driver}"), **POOLS[pool])
    yield engine
    await engine.dispose()


async def _publish_each_way(session: Any, table: Table, mark: bytes) -> None:
    await publish(session, table, message(mark + b"one"))
    await publish(session, table, message(mark + b"alike"), message(mark + b"alike"))
    await publish(session, table, message(mark + b"first"), message(mark + b"second", queue="mails"))
    await publish(session, table, message(mark + b"timer", timer_id=f"{mark!r}"))
    assert await cancel_timer(session, table, queue="orders", timer_id=f"{mark!r}")


BODIES = [b"one", b"alike", b"alike", b"first", b"second"]


async def test_savepoints(pooled: AsyncEngine, table: Table, rows: Rows) -> None:
    for kind in ("session", "connection"):
        async with AsyncSession(pooled) if kind == "session" else pooled.connect() as session:
            mark = kind.encode()
            await _publish_each_way(session, table, mark + b" before ")
            async with session.begin_nested():
                await _publish_each_way(session, table, mark + b" kept ")
            inner = await session.begin_nested()
            await _publish_each_way(session, table, mark + b" undone ")
            await inner.rollback()
            await session.commit()
    kinds = (b"session before ", b"session kept ", b"connection before ", b"connection kept ")
    kept = [kind + body for kind in kinds for body in BODIES]
    assert [bytes(row["payload"]) for row in rows()] == kept


async def test_each_statement_commits_by_itself(pooled: AsyncEngine, table: Table, rows: Rows) -> None:
    async with pooled.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await _publish_each_way(connection, table, b"")
        assert [bytes(row["payload"]) for row in rows()] == BODIES
    async with AsyncSession(pooled.execution_options(isolation_level="AUTOCOMMIT")) as session:
        await _publish_each_way(session, table, b"")
    assert [bytes(row["payload"]) for row in rows()] == BODIES * 2


async def test_topics(pooled: AsyncEngine) -> None:
    async with opened(pooled) as outbox:
        async with AsyncSession(pooled) as session, session.begin():
            await outbox.publish(session, OutboxMessage("t", 1), OutboxMessage("t", 2))
            async with session.begin_nested():
                await outbox.publish(session, OutboxMessage("t", 3))
            inner = await session.begin_nested()
            await outbox.publish(session, OutboxMessage("t", 4), OutboxMessage("t", 5))
            await inner.rollback()
        async with pooled.connect() as connection:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            await outbox.publish(connection, OutboxMessage("t", 6))
        assert await delivered(outbox, "g") == [1, 2, 3, 6]

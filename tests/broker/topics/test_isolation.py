"""Transactional handlers of topics above READ COMMITTED: effects once, also of handlers longer than their lease."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import ConstantRetry
from faststream_outbox.annotations import OutboxSession
from tests.broker.topics.stage import Stage

LEASE = 0.8
pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


@pytest.fixture(params=["asyncpg", "psycopg"])
async def strict(request: pytest.FixtureRequest, database_url: URL, level: str) -> AsyncIterator[AsyncEngine]:
    """An engine of that isolation level, on each of the drivers in turn."""
    url = database_url.set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url, isolation_level=level)
    yield engine
    await engine.dispose()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_handler_longer_than_its_lease_runs_once(stage: Stage, strict: AsyncEngine, batch: bool) -> None:
    broker = stage.another(engine=strict)

    @broker.subscriber(
        topic="orders",
        group="billing",
        transactional=True,
        batch=batch,
        lease_ttl_seconds=LEASE,
        retry_strategy=ConstantRetry(delay_seconds=0.05, max_attempts=3),
    )
    async def handle(body: list[int] | int, session: OutboxSession) -> None:
        stage.seen.append(body)
        await stage.write(session, body[0] if isinstance(body, list) else body)
        await asyncio.sleep(1.5 * LEASE)

    await stage.publish(1, key="order-1")
    await broker.start()
    await stage.caught_up()
    assert len(stage.seen) == 1
    assert await stage.effect_numbers() == [1]
    await broker.stop()

"""A handler whose transaction could not begin has not begun: no attempt is used up, in queues and in topics."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import URL
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import NoRetry, events
from faststream_outbox._internal.broker import message
from faststream_outbox.annotations import OutboxSession
from tests.broker.topics.stage import Stage

PLACES = [{"queues": "orders"}, {"topic": "orders", "group": "billing"}]


@pytest.fixture(params=["asyncpg", "psycopg"])
async def narrow(request: pytest.FixtureRequest, database_url: URL) -> AsyncIterator[AsyncEngine]:
    """An engine with one connection for the application, on each of the drivers in turn."""
    url = database_url.set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    yield engine
    await engine.dispose()


@pytest.fixture
async def patient(database_url: URL) -> AsyncIterator[AsyncEngine]:
    """An engine with one connection, for which it waits longer than any test."""
    engine = create_async_engine(database_url, pool_size=1, max_overflow=0, pool_timeout=3600)
    yield engine
    await engine.dispose()


async def publish(stage: Stage, place: dict[str, str]) -> None:
    if "queues" in place:
        async with stage.engine.begin() as connection:
            await stage.broker.publish(1, queue="orders", session=connection)
    else:
        await stage.publish(1)


@pytest.mark.parametrize("place", PLACES, ids=["queue", "topic"])
async def test_no_attempt_is_used_up_while_the_pool_is_empty(
    stage: Stage, narrow: AsyncEngine, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "NOT_BEGUN_SECONDS", 0.05)
    broker = stage.replace(engine=narrow)

    @broker.subscriber(**place, transactional=True, retry_strategy=NoRetry())
    async def handle(body: int, session: OutboxSession) -> None:
        stage.seen.append(body)
        await stage.write(session, body)

    await publish(stage, place)
    async with narrow.connect():
        await broker.start()
        retried = await stage.witness.wait(events.Retried, 3)
        assert isinstance(retried.error, PoolExhausted)
        assert stage.seen == []
    await stage.wrote(1)
    assert stage.witness.of(events.Died) == []


@pytest.mark.parametrize("place", PLACES, ids=["queue", "topic"])
async def test_nor_where_the_time_of_the_handler_is_over_first(
    stage: Stage, patient: AsyncEngine, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "NOT_BEGUN_SECONDS", 0.05)
    broker = stage.replace(engine=patient)

    @broker.subscriber(**place, transactional=True, retry_strategy=NoRetry(), handler_timeout=0.1)
    async def handle(body: int, session: OutboxSession) -> None:
        raise AssertionError

    await publish(stage, place)
    async with patient.connect():
        await broker.start()
        retried = await stage.witness.wait(events.Retried, 3)
        assert isinstance(retried.error, TimeoutError)
        await broker.stop()
    assert stage.witness.of(events.Died) == []

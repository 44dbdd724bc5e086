"""Transactional handlers above READ COMMITTED: effects exactly once, also of handlers longer than their lease."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import URL, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.log import OutboxMessage
from tests.log.opened import drain, reading
from tests.log.rig import LogRig

LEASE = 0.8
LEVELS = pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])


@pytest.fixture(params=["asyncpg", "psycopg"])
async def strict(request: pytest.FixtureRequest, database_url: URL, level: str) -> AsyncIterator[AsyncEngine]:
    """An engine of that isolation level, on each of the drivers in turn."""
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{request.param}"), isolation_level=level)
    yield engine
    await engine.dispose()


@pytest.mark.slow
@LEVELS
@pytest.mark.parametrize("kind", ["fresh", "deferred"])
async def test_handler_longer_than_its_lease_runs_once(rig: LogRig, strict: AsyncEngine, kind: str) -> None:
    retry = ConstantRetry(delay_seconds=0.01)
    outbox = await rig.another(engine=strict, lease_ttl_seconds=LEASE, retry_strategy=retry)
    token = await rig.put("k", 1)
    calls: list[Any] = []

    async def handle(message: OutboxMessage, session: AsyncSession) -> None:
        calls.append(message.payload)
        if kind == "deferred" and len(calls) == 1:
            raise ValueError(message.payload)
        await session.execute(text("select 1"))
        await asyncio.sleep(1.5 * LEASE)

    async with reading(outbox, handle, "g", poll_interval=0.1, transactional=True):
        await rig.outbox.wait_until_caught_up(token, "g", timeout=20)
    assert calls == ([1] if kind == "fresh" else [1, 1])
    assert rig.reported(events.LeaseWasLost) == []


@LEVELS
async def test_batch_goes_on_where_a_slot_has_to_stop(rig: LogRig, strict: AsyncEngine) -> None:
    """The span is cut to stop one slot: not while the handlers' own transaction holds it."""
    outbox = await rig.another(engine=strict, retry_strategy=ConstantRetry(delay_seconds=3600), max_deferred=1)
    await rig.put("k", 1, 2, 3)
    await rig.put("other", 4)
    seen: list[Any] = []

    async def handle(message: OutboxMessage, session: AsyncSession) -> None:
        if message.uri == "k":
            raise ValueError(message.payload)
        seen.append(message.payload)

    async with asyncio.timeout(20):
        await drain(outbox, handle, "g", transactional=True)
    assert seen == [4]
    assert rig.reported(events.LeaseWasLost) == []


@pytest.mark.slow
@pytest.mark.parametrize("level", ["READ COMMITTED"])
async def test_nothing_is_asked_or_locked_again_at_read_committed(rig: LogRig, strict: AsyncEngine) -> None:
    outbox = await rig.another(engine=strict)
    sent: list[str] = []
    event.listen(strict.sync_engine, "before_cursor_execute", lambda *said: sent.append(said[2]))

    async def handle(message: OutboxMessage, session: AsyncSession) -> None:
        await session.execute(text("select 1"))

    for number in range(3):
        await rig.put("k", number)
        await drain(outbox, handle, "g", transactional=True)
    assert sum("show transaction_isolation" in statement for statement in sent) == 1
    # Of each message: the handler's own, and the settle.
    assert len([statement for statement in sent if "SAVEPOINT" not in statement]) == 1 + 3 * 2

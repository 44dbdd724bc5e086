"""The log behind PgBouncer in transaction mode: everything works, and strangers find nothing on the connections."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.events.types import LoopCrashed, StatementFailed
from faststream_outbox.events import Events
from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, ask, delivered, drain, opened, put
from tests.pgbouncer.conftest import Left, Make
from tests.waiting import eventually

pytestmark = pytest.mark.pgbouncer

LIMIT = 30.0
URIS = [f"kafka://orders/{number}" for number in range(8)]


@pytest.fixture
async def outbox(make: Make) -> AsyncIterator[Outbox]:
    """A log behind the pooler, without LISTEN, which a pooler accepts and does not pass on."""
    async with opened(make(), listen=False, events=Events()) as outbox:
        yield outbox


@pytest.fixture
def troubles(outbox: Outbox) -> list[Any]:
    """What went wrong on the log's own connections."""
    heard: list[Any] = []
    outbox.events.subscribe(heard.append, StatementFailed, LoopCrashed)
    return heard


@asynccontextmanager
async def another(make: Make, troubles: list[Any]) -> AsyncGenerator[Outbox]:
    """The same log in another process."""
    outbox = Outbox(make(), listen=False, events=Events())
    outbox.events.subscribe(troubles.append, StatementFailed, LoopCrashed)
    yield outbox
    await outbox.cleanup()


async def _publish(outbox: Outbox, numbers: range) -> None:
    for number in numbers:
        async with AsyncSession(outbox.engine) as session, session.begin():
            await outbox.publish(session, *[OutboxMessage(uri, number) for uri in URIS])


def _in_order(collector: Collector, count: int) -> None:
    for uri in URIS:
        assert collector.of(uri) == list(range(count)), uri


@pytest.mark.slow
async def test_publish_and_dispatch(outbox: Outbox, make: Make, troubles: list[Any], left: Left) -> None:
    collector = Collector()
    async with another(make, troubles) as other:
        await _publish(outbox, range(12))
        for _ in range(4):
            for one, worker in ((outbox, 0), (other, 1)):
                await one.dispatch(collector, "broker", worker_id=worker, num_workers=2, batch_size=7)
        await drain(other, collector, "broker", "")
    _in_order(collector, 12)
    assert troubles == []
    assert left.everything() == []


@pytest.mark.slow
async def test_run_in_two_processes_while_others_publish(
    outbox: Outbox, make: Make, troubles: list[Any], left: Left
) -> None:
    collector, stop = Collector(), asyncio.Event()
    async with another(make, troubles) as other, another(make, troubles) as publisher:
        running = [
            asyncio.create_task(one.run(collector, "broker", concurrency=2, poll_interval=0.2, stop_event=stop))
            for one in (outbox, other)
        ]
        await _publish(publisher, range(15))
        await eventually(lambda: len(collector.messages) >= 15 * len(URIS), timeout=LIMIT)
        stop.set()
        await asyncio.wait_for(asyncio.gather(*running), LIMIT)
    _in_order(collector, 15)
    assert troubles == []
    assert left.everything() == []


@pytest.mark.slow
@pytest.mark.parametrize("way", ["dispatch", "run"])
async def test_effects_of_a_transactional_handler_happen_once(
    outbox: Outbox, troubles: list[Any], left: Left, way: str
) -> None:
    await ask(outbox.engine, "create table effect (n int)")
    failed: set[int] = set()

    async def handle(message: OutboxMessage, session: AsyncSession) -> None:
        await session.execute(text("insert into effect values (:n)"), {"n": message.payload})
        if message.payload == 3 and not failed:
            failed.add(3)
            raise RuntimeError("once")

    async def effects() -> list[int]:
        return [row[0] for row in await ask(outbox.engine, "select n from effect order by n")]

    async def are_there() -> bool:
        if way == "dispatch":
            await outbox.dispatch(handle, "broker", transactional=True)
        return await effects() == list(range(6))

    for number in range(6):
        await put(outbox, URIS[number], number)
    stop = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as running:
            if way == "run":
                reading = outbox.run(handle, "broker", transactional=True, poll_interval=0.2, stop_event=stop)
                running.create_task(reading)
            await eventually(are_there, timeout=LIMIT)
            stop.set()
    finally:
        await ask(outbox.engine, "drop table effect")
    assert troubles == []
    assert left.everything() == []


async def test_the_iterator_and_its_position(outbox: Outbox, troubles: list[Any], left: Left) -> None:
    await put(outbox, URIS[0], *range(5))
    seen: list[int] = []
    iterator = outbox.messages("broker")
    async for message in iterator:
        seen.append(message.payload)
        if len(seen) == 3:
            break
    await iterator.aclose()  # type: ignore[attr-defined]
    assert seen == [0, 1, 2]
    assert await delivered(outbox, "broker") == [2, 3, 4]
    assert troubles == []
    assert left.everything() == []


async def test_positions_lag_parked_messages_and_retention(outbox: Outbox, troubles: list[Any], left: Left) -> None:
    async def fail(message: OutboxMessage) -> None:
        raise RuntimeError("down")

    await put(outbox, URIS[0], 1, 2)
    await outbox.dispatch(fail, "broken", batch_size=1)
    (deferral,) = await outbox.parked.list("broken", state=None)
    await outbox.parked.skip("broken", deferral.position)
    assert sum(lag.messages for lag in await outbox.lag("broken")) == 1
    assert await delivered(outbox, "broken") == [2]
    async with AsyncSession(outbox.engine) as session, session.begin():
        await outbox.set_position(session, "broken")
        assert await outbox.get_position(session, "broken") == (0, 0)
    async with AsyncSession(outbox.engine) as session, session.begin():
        # First in its transaction: it sequences on a connection of its own, and there may be only one.
        await outbox.seek(session, "latest", "new", create=True)
    assert await delivered(outbox, "broken") == [1, 2]
    assert await delivered(outbox, "new") == []
    await outbox.clean(older_than=timedelta(0))
    assert troubles == []
    assert left.everything() == []


async def test_a_rollback_leaves_nothing(outbox: Outbox, left: Left) -> None:
    async with AsyncSession(outbox.engine) as session:
        await outbox.publish(session, OutboxMessage(URIS[0], "lost"))
        await outbox.publish(session, *[OutboxMessage(URIS[0], "lost")] * 3)
        await session.rollback()
        await outbox.publish(session, OutboxMessage(URIS[0], "kept"))
        await session.commit()
    assert await delivered(outbox, "broker") == ["kept"]
    assert left.everything() == []


async def test_with_listening_left_on_messages_still_arrive(left: Left, make: Make) -> None:
    """LISTEN is accepted by the pooler and hears nothing: polling delivers, and no statement gets a name."""
    collector, stop = Collector(), asyncio.Event()
    async with opened(make()) as outbox:
        running = asyncio.create_task(outbox.run(collector, "broker", poll_interval=0.2, stop_event=stop))
        await _publish(outbox, range(5))
        await eventually(lambda: len(collector.messages) >= 5 * len(URIS), timeout=LIMIT)
        stop.set()
        await asyncio.wait_for(running, LIMIT)
    _in_order(collector, 5)
    assert [*left.statements(), *left.changed_settings()] == []

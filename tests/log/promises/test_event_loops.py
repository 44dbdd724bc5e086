"""Event loops one after the other in one program: a log and a broker's topics go on in each, stopped or not."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import URL, MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox import OutboxBroker
from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables
from faststream_outbox.schema import make_outbox_table
from tests.waiting import eventually

LOOPS = 3
MESSAGES = 10


@pytest.fixture(params=["asyncpg", "psycopg"])
def loose_engine(request: pytest.FixtureRequest, database_url: URL) -> AsyncEngine:
    """An engine that keeps no connection, as one must be that serves several loops."""
    return create_async_engine(database_url.set(drivername=f"postgresql+{request.param}"), poolclass=NullPool)


@pytest.fixture(autouse=True)
def no_loop_of_the_tests() -> Iterator[None]:
    """Each `asyncio.run` ends with no loop set."""
    yield
    asyncio.set_event_loop_policy(None)


@pytest.fixture
def metadata(loose_engine: AsyncEngine) -> Iterator[MetaData]:
    """Tables that are there for one test."""
    metadata = MetaData()
    make_outbox_table(metadata, "loops_queue")
    make_log_tables(metadata, "loops_log", "loops_log_offsets")

    async def change(name: str) -> None:
        async with loose_engine.begin() as connection:
            await connection.run_sync(getattr(metadata, name))

    asyncio.run(change("create_all"))
    yield metadata
    asyncio.run(change("drop_all"))


def run(scene: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(40):
            await scene()

    asyncio.run(within())


async def publish(outbox: Outbox, first: int) -> None:
    async with AsyncSession(outbox.engine) as session, session.begin():
        messages = [OutboxMessage(f"orders/{number}", number) for number in range(first, first + MESSAGES)]
        await outbox.publish(session, *messages)


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "left"])
@pytest.mark.parametrize("way", ["run", "dispatch", "iterate"])
def test_log_is_read_in_each(loose_engine: AsyncEngine, metadata: MetaData, way: str, is_stopped: bool) -> None:
    outbox = Outbox(loose_engine, "loops_log", "loops_log_offsets", lease_ttl_seconds=1.0)
    seen: list[Any] = []

    async def handle(message: OutboxMessage) -> None:
        seen.append(message.payload)

    async def iterate() -> None:
        async for message in outbox.messages("g"):
            seen.append(message.payload)

    for number in range(LOOPS):
        expected = (number + 1) * MESSAGES

        async def scene(expected: int = expected) -> None:
            await publish(outbox, expected - MESSAGES)
            if way == "dispatch":
                while len(set(seen)) < expected:
                    await outbox.dispatch(handle, "g")
            else:
                stop = asyncio.Event()
                reading = outbox.run(handle, "g", concurrency=2, stop_event=stop) if way == "run" else iterate()
                task = asyncio.create_task(reading)
                await eventually(lambda: len(set(seen)) >= expected, 30)
                if is_stopped:
                    stop.set()
                    if way == "iterate":
                        task.cancel()
                    await asyncio.wait([task])
            if is_stopped:
                await outbox.cleanup()

        run(scene)
    assert sorted(set(seen)) == list(range(LOOPS * MESSAGES))


@pytest.mark.parametrize("is_stopped", [True, False], ids=["stopped", "left"])
def test_topics_of_a_broker_are_read_in_each(loose_engine: AsyncEngine, metadata: MetaData, is_stopped: bool) -> None:
    described = MetaData()
    tables = make_log_tables(described, "loops_log", "loops_log_offsets")
    queue = make_outbox_table(described, "loops_queue")
    broker = OutboxBroker(loose_engine, outbox_table=queue, dlq_table=None, log_tables=tables, logger=None)
    outbox = Outbox(loose_engine, tables=tables, listen=False)
    seen: list[int] = []

    @broker.subscriber(topic="orders", group="g", max_workers=2, lease_ttl_seconds=1.5, max_fetch_interval=1.0)
    async def handle(body: int) -> None:
        seen.append(body)

    for number in range(LOOPS):
        expected = (number + 1) * MESSAGES

        async def scene(expected: int = expected) -> None:
            await publish(outbox, expected - MESSAGES)
            await broker.start()
            await eventually(lambda: len(set(seen)) >= expected, 30)
            if is_stopped:
                await broker.stop()

        run(scene)
    assert sorted(set(seen)) == list(range(LOOPS * MESSAGES))


def test_handled_messages_do_not_come_again_where_the_program_ends_while_they_are_settled(
    loose_engine: AsyncEngine, metadata: MetaData
) -> None:
    """The end of `asyncio.run` cancels every task, also the one that writes."""
    outbox = Outbox(loose_engine, "loops_log", "loops_log_offsets", lease_ttl_seconds=1.0)
    seen: list[Any] = []

    async def handle(message: OutboxMessage) -> None:
        seen.append(message.payload)

    async def end_in_the_middle() -> None:
        await publish(outbox, 0)
        fetch, is_there = outbox.client.connection.fetch, asyncio.Event()

        async def hold_the_first(statement: Any, values: Any) -> Any:
            if statement.name == "move" and not is_there.is_set():
                is_there.set()
                await asyncio.Event().wait()
            return await fetch(statement, values)

        outbox.client.connection.fetch = hold_the_first  # type: ignore[method-assign]
        running.append(asyncio.create_task(outbox.run(handle, "g")))
        await asyncio.wait_for(is_there.wait(), 20)

    async def read_on() -> None:
        while len(set(seen)) < MESSAGES:
            await outbox.dispatch(handle, "g")
        assert not await outbox.dispatch(handle, "g")

    running: list[asyncio.Task[None]] = []
    run(end_in_the_middle)
    run(read_on)
    assert sorted(seen) == list(range(MESSAGES))

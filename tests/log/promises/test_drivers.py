"""The log on asyncpg and on psycopg: the same with each, also where the database defaults to stricter isolation."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from faststream_outbox.log import DuplicateMessage, Outbox, OutboxMessage
from tests.log.opened import Collector, ask, delivered, drain, opened, put
from tests.waiting import eventually

URI = "kafka://orders"


@pytest.fixture
async def outbox(driver_engine: AsyncEngine) -> AsyncIterator[Outbox]:
    async with opened(driver_engine) as outbox:
        yield outbox


@pytest.mark.slow
async def test_what_is_published_is_delivered_as_it_was(outbox: Outbox) -> None:
    event_id = uuid4()
    payloads: list[Any] = [{"a": [1, None, "é😀\x00"]}, b"\x00\xff", "text", 1.0, None]
    published = [OutboxMessage(URI, payload, {"n": number}) for number, payload in enumerate(payloads)]
    async with AsyncSession(outbox.engine) as session, session.begin():
        token = await outbox.publish(session, *published)
        one = await outbox.publish(session, OutboxMessage(f"{URI}/%s", "one", {"event_id": event_id}))
    collector = Collector()
    await drain(outbox, collector, "broker")
    assert collector.payloads == [*payloads, "one"]
    assert [message.metadata for message in collector.messages] == [
        *({"n": number} for number in range(len(payloads))),
        {"event_id": str(event_id)},
    ]
    assert tuple(message.position for message in collector.messages) == token.positions + one.positions


@pytest.mark.parametrize("count", [1, 3], ids=["alone", "among others"])
async def test_a_duplicate_is_found_without_an_error_of_the_database(outbox: Outbox, count: int) -> None:
    known = OutboxMessage(URI, 1, {"event_id": "known"})
    async with AsyncSession(outbox.engine) as session, session.begin():
        await outbox.publish(session, known)
    async with AsyncSession(outbox.engine) as session, session.begin():
        with pytest.raises(DuplicateMessage):
            await outbox.publish(session, known, *[OutboxMessage(URI, 2)] * (count - 1))
        assert (await session.execute(text("select 1"))).scalar_one() == 1


@pytest.mark.slow
async def test_dispatch_in_shares(outbox: Outbox) -> None:
    uris = [f"{URI}/{number}" for number in range(40)]
    for uri in uris:
        await put(outbox, uri, uri)
    shares = [await delivered(outbox, "broker", URI, worker_id=worker, num_workers=3) for worker in range(3)]
    assert sorted(uri for share in shares for uri in share) == sorted(uris)
    assert not await outbox.dispatch(Collector(), "broker", URI)


@pytest.mark.slow
async def test_a_failed_message_is_kept_with_its_error_and_comes_again(outbox: Outbox) -> None:
    calls: list[int] = []

    async def fail_once(message: OutboxMessage) -> None:
        calls.append(message.payload)
        if len(calls) == 1:
            raise ValueError("% { é \x00")

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


async def test_run_hears_of_messages_of_another_process(outbox: Outbox) -> None:
    """Long before it would poll: by the ticks of the process itself, without a word from the publisher."""
    collector, stop = Collector(), asyncio.Event()
    running = asyncio.create_task(outbox.run(collector, "broker", concurrency=2, poll_interval=60.0, stop_event=stop))
    publisher = Outbox(outbox.engine)
    for number in range(5):
        await put(publisher, f"{URI}/{number}", number)
        await eventually(lambda count=number + 1: len(collector.messages) == count)
    stop.set()
    await asyncio.wait_for(running, 30)
    assert collector.payloads == list(range(5))
    await publisher.cleanup()


async def test_the_effects_of_a_transactional_handler_are_committed_with_the_position(outbox: Outbox) -> None:
    await ask(outbox.engine, "create table effect (n int primary key)")

    async def handle(message: OutboxMessage, session: AsyncSession) -> None:
        await session.execute(text("insert into effect values (:n)"), {"n": message.payload})
        if message.payload == 2:
            raise RuntimeError("no")

    try:
        for number in range(4):
            await put(outbox, f"{URI}/{number}", number)
        await outbox.dispatch(handle, "broker", transactional=True)
        assert [row[0] for row in await ask(outbox.engine, "select n from effect order by n")] == [0, 1, 3]
        assert [
            deferral.message and deferral.message.payload for deferral in await outbox.parked.list(state="retry")
        ] == [2]
    finally:
        await ask(outbox.engine, "drop table effect")


async def test_the_iterator_goes_on_where_it_was_left(outbox: Outbox) -> None:
    await put(outbox, URI, *range(4))
    first = outbox.messages("broker")
    assert [(await anext(first)).payload, (await anext(first)).payload] == [0, 1]
    await first.aclose()  # type: ignore[attr-defined]
    again = outbox.messages("broker")
    assert [(await anext(again)).payload, (await anext(again)).payload] == [1, 2]
    await again.aclose()  # type: ignore[attr-defined]


async def test_deliveries_are_acked_and_nacked_by_hand(outbox: Outbox) -> None:
    await put(outbox, f"{URI}/a", "ack")
    await put(outbox, f"{URI}/b", "park")
    handed = outbox.deliveries("broker")
    (await anext(handed)).ack()
    (await anext(handed)).park(RuntimeError("by hand"))
    stepping = asyncio.ensure_future(anext(handed))
    await put(outbox, f"{URI}/c", "last")
    await asyncio.wait_for(stepping, 30)
    await handed.aclose()  # type: ignore[attr-defined]
    (parked,) = await outbox.parked.list("broker")
    assert (parked.key, parked.error_message) == (f"{URI}/b", "by hand")


async def test_positions_are_read_and_set_in_the_callers_transaction(outbox: Outbox) -> None:
    await put(outbox, URI, *range(5))
    await drain(outbox, Collector(), "broker")
    async with AsyncSession(outbox.engine) as session:
        transaction_id, offset = await outbox.get_position(session, "broker")
        assert offset == 5
        await outbox.set_position(session, "broker", offset=2)
        assert (await outbox.get_position(session, "broker"))[1] == 2
        await session.rollback()
        assert await outbox.get_position(session, "broker") == (transaction_id, offset)
        await outbox.set_position(session, "broker", offset=2)
        await session.commit()
    assert await delivered(outbox, "broker") == [2, 3, 4]


async def test_seek_by_event_id_and_waiting_for_a_token(outbox: Outbox) -> None:
    event_id = str(uuid4())
    async with AsyncSession(outbox.engine) as session, session.begin():
        token = await outbox.publish(
            session, OutboxMessage(URI, 1), OutboxMessage(URI, 2, {"event_id": event_id}), OutboxMessage(URI, 3)
        )
    with pytest.raises(TimeoutError):
        await outbox.wait_until_caught_up(token, "broker", timeout=0.05)
    await drain(outbox, Collector(), "broker")
    await outbox.wait_until_caught_up(token, "broker", timeout=30)
    async with AsyncSession(outbox.engine) as session, session.begin():
        await outbox.seek(session, event_id, "broker")
    assert await delivered(outbox, "broker") == [2, 3]


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

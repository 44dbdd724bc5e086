"""What outlives a transactional handler cannot publish in its transaction any more, and is told so."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, Envelope, OutboxBroker, TestOutboxBroker
from faststream_outbox.annotations import OutboxSession
from faststream_outbox.errors import SessionRequired
from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.publish import publish
from faststream_outbox.testing import fake_session
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

LATER = ConstantRetry(delay_seconds=1000)


@pytest.mark.parametrize("fails", [False, True])
async def test_publishing_after_the_handler_is_refused_in_every_way(stage: Stage, fails: bool) -> None:
    broker = stage.broker
    publisher, to_topic = broker.publisher("late"), broker.publisher(topic="late")
    is_over, left = asyncio.Event(), []

    async def afterwards(session: AsyncSession) -> list[str]:
        await is_over.wait()
        ways: list[Callable[[], Awaitable[Any]]] = [
            lambda: broker.publish(1, "late"),
            lambda: broker.publish(1, "late", session=session),
            lambda: broker.publish(1, topic="late"),
            lambda: broker.publish(1, topic="late", session=session),
            lambda: broker.publish_batch(1, 2, queue="late"),
            lambda: broker.publish_batch(1, 2, topic="late", session=session),
            lambda: publisher.publish(1),
            lambda: to_topic.publish(1, session=session),
            lambda: broker.cancel_timer(queue="late", timer_id="t", session=session),
            lambda: broker.fetch_unprocessed(session=session),
            lambda: publish(session, stage.table, Envelope(queue="late", body=b"1")),
            lambda: stage.outbox.publish(session, OutboxMessage("late", 1)),
        ]
        said = []
        for way in ways:
            with pytest.raises(SessionRequired) as refused:
                await way()
            said.append(str(refused.value))
        with pytest.raises(InvalidRequestError):
            await session.execute(text("select 1"))
        return said

    @broker.subscriber("orders", transactional=True, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession) -> None:
        left.append(asyncio.create_task(afterwards(session)))
        await broker.publish(body, "mails")
        if fails:
            raise ValueError

    await broker.start()
    await stage.send(1, "orders")

    async def it_was_settled() -> bool:
        rows = await stage.sql(f"select attempts_count from {stage.table.name} where queue = 'orders'")
        return [row["attempts_count"] for row in rows] == ([1] if fails else [])

    await eventually(lambda: left)
    await eventually(it_was_settled)
    is_over.set()
    async with asyncio.timeout(30):
        said = await left[0]
    assert all("has ended" in text and "session=session" in text for text in said)
    assert await stage.in_queue("late") == []
    assert await stage.in_log("late") == []
    assert await stage.in_queue("mails") == ([] if fails else [b"1"])
    await eventually(lambda: not stage.engine.pool.checkedout())  # type: ignore[attr-defined]


async def test_session_of_a_subscriber_of_the_log_ends_with_it(stage: Stage) -> None:
    sessions: list[AsyncSession] = []

    async def handle(_: OutboxMessage, session: AsyncSession) -> None:
        sessions.append(session)

    outbox = Outbox(stage.engine, tables=stage.log_tables, listen=False)
    await stage.publish(1)
    assert await outbox.dispatch(handle, "billing", "orders", transactional=True)
    await outbox.cleanup()
    with pytest.raises(SessionRequired, match="has ended"):
        await outbox.publish(sessions[0], OutboxMessage("late", 1))
    assert not stage.engine.pool.checkedout()  # type: ignore[attr-defined]


async def test_publishing_after_the_handler_is_refused_in_memory_too(broker: OutboxBroker) -> None:
    is_over, left = asyncio.Event(), []

    async def afterwards() -> None:
        await is_over.wait()
        await broker.publish(1, "late")

    @broker.subscriber("orders", transactional=True)
    async def handle(body: int) -> None:
        left.append(asyncio.create_task(afterwards()))

    async with TestOutboxBroker(broker) as tested:
        await tested.publish(1, "orders", session=fake_session())
        is_over.set()
        with pytest.raises(SessionRequired, match="has ended"):
            await left[0]

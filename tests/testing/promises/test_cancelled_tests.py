"""A test that is cancelled or runs out of time while a handler hangs hears of it, as it would without a test broker."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, TestOutboxBroker, make_outbox_table
from faststream_outbox.log import make_log_tables
from faststream_outbox.testing import fake_session

PLACES: Any = pytest.mark.parametrize("place", [{"queue": "orders"}, {"queue": "batches"}, {"topic": "shop"}], ids=str)


@pytest.fixture
def hanging() -> asyncio.Event:
    """Set when a handler hangs."""
    return asyncio.Event()


@pytest.fixture
async def broker(hanging: asyncio.Event) -> AsyncIterator[OutboxBroker]:
    metadata = MetaData()
    outbox, log = make_outbox_table(metadata), make_log_tables(metadata, "outbox_log")
    broker = OutboxBroker(outbox_table=outbox, dlq_table=None, log_tables=log, logger=None)

    async def hang(body: Any) -> None:
        hanging.set()
        await asyncio.Event().wait()

    async def cancel_itself(body: Any) -> None:
        raise asyncio.CancelledError

    broker.subscriber("orders")(hang)
    broker.subscriber("batches", batch=True)(hang)
    broker.subscriber(topic="shop", group="billing")(hang)
    broker.subscriber("own")(cancel_itself)
    async with TestOutboxBroker(broker) as tested:
        yield tested


async def timed_out(publishing: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.timeout(0.05):
        await publishing


async def waited_for(publishing: Coroutine[Any, Any, Any]) -> None:
    await asyncio.wait_for(publishing, 0.05)


@PLACES
@pytest.mark.parametrize("way", [timed_out, waited_for])
async def test_time_that_is_up_around_a_publish_is_raised(broker: OutboxBroker, place: Any, way: Any) -> None:
    with pytest.raises(TimeoutError):
        await way(broker.publish(1, session=fake_session(), **place))


@PLACES
async def test_cancelled_task_is_cancelled(broker: OutboxBroker, hanging: asyncio.Event, place: Any) -> None:
    task = asyncio.create_task(broker.publish(1, session=fake_session(), **place))
    await hanging.wait()
    task.cancel()
    await asyncio.wait([task], timeout=20)
    assert task.cancelled()


@pytest.mark.parametrize("queue", ["orders", "batches"])
async def test_message_of_a_cancelled_test_is_given_back(broker: OutboxBroker, queue: str) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(broker.publish(1, queue, session=fake_session()), 0.05)
    (row,) = broker.fake_client.rows  # type: ignore[attr-defined]
    assert (row.acquired_token, row.attempts_count) == (None, 0)


async def test_handler_that_cancels_itself_fails_its_message(broker: OutboxBroker) -> None:
    with pytest.raises(asyncio.CancelledError):
        await broker.publish(1, "own", session=fake_session())
    (row,) = broker.fake_client.rows  # type: ignore[attr-defined]
    assert (row.acquired_token, row.attempts_count) == (None, 1)

"""The test broker and time: at once by default, waiting when loops run."""

import asyncio
import datetime as dt

import pytest

from faststream_outbox import OutboxBroker, TestOutboxBroker
from faststream_outbox.testing import fake_session

LATER = dt.datetime(2999, 6, 1, 9, tzinfo=dt.UTC)
HALF_A_MINUTE = dt.timedelta(seconds=30)


def collect(broker: OutboxBroker) -> "asyncio.Queue[int]":
    bodies: asyncio.Queue[int] = asyncio.Queue()

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        bodies.put_nowait(body)

    return bodies


@pytest.mark.parametrize(
    "when", [{"activate_in": HALF_A_MINUTE}, {"activate_at": LATER}], ids=["activate_in", "activate_at"]
)
async def test_timers_fire_at_once(unconnected: OutboxBroker, when: dict[str, dt.timedelta]) -> None:
    bodies = collect(unconnected)
    async with TestOutboxBroker(unconnected) as broker:
        await broker.publish(1, queue="orders", session=fake_session(), **when)  # type: ignore[arg-type]
        assert bodies.get_nowait() == 1


async def test_the_schedule_is_recorded_on_the_fake_row(unconnected: OutboxBroker) -> None:
    async with TestOutboxBroker(unconnected) as broker:
        await broker.publish(1, queue="nobody", session=fake_session(), activate_at=LATER)
        assert broker.fake_client.rows[0].next_attempt_at == LATER  # type: ignore[attr-defined]


async def test_a_schedule_from_now_is_recorded_on_the_fake_row(unconnected: OutboxBroker) -> None:
    async with TestOutboxBroker(unconnected) as broker:
        await broker.publish(1, queue="nobody", session=fake_session(), activate_in=HALF_A_MINUTE)
        row = broker.fake_client.rows[0]  # type: ignore[attr-defined]
        assert row.next_attempt_at - row.created_at == HALF_A_MINUTE


async def test_with_loops_a_timer_waits(unconnected: OutboxBroker) -> None:
    bodies = collect(unconnected)
    test = TestOutboxBroker(unconnected, run_loops=True)
    async with test as broker:
        await broker.publish(1, queue="orders", session=fake_session(), activate_in=HALF_A_MINUTE)
        await broker.publish(2, queue="orders", session=fake_session())
        async with asyncio.timeout(30):
            assert await bodies.get() == 2
        assert bodies.empty()
        test.advance(HALF_A_MINUTE)
        async with asyncio.timeout(30):
            assert await bodies.get() == 1

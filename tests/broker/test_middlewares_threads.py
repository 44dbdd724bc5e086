"""Handlers that are no coroutines run in threads, which nobody can cancel: messages stay leased until they end."""

import threading
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker, events
from tests.broker.effects import EffectsShop
from tests.queue.conftest import renewed_often
from tests.queue.witness import Witness
from tests.waiting import eventually

LEASE = 60.0

__all__ = ["renewed_often"]


class Thread:
    """A handler that computes until it is told to end."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.finish = threading.Event()
        self.bodies: list[int] = []

    def __call__(self, body: int) -> None:
        self.begun.set()
        self.finish.wait(60)
        self.bodies.append(body)


@pytest.fixture
def thread() -> Thread:
    return Thread()


@pytest.fixture
async def other(engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[OutboxBroker]:
    """A broker of another process, which looks for leases that ran out all the time."""
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=dlq_table, logger=None)
    yield broker
    await broker.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("renewed_often")
async def test_one_that_outlives_a_stop_keeps_its_message_until_it_ends(
    shop: EffectsShop, other: OutboxBroker, thread: Thread
) -> None:
    stolen: list[int] = []
    witness = Witness()

    @shop.broker.subscriber("orders", lease_ttl_seconds=LEASE, max_fetch_interval=0.5, min_fetch_interval=0.5)
    def handle(body: int) -> None:
        thread(body)

    @other.subscriber("orders", lease_ttl_seconds=LEASE, min_fetch_interval=0.05, max_fetch_interval=0.05)
    async def steal(body: int) -> None:
        stolen.append(body)

    shop.broker.client.events.subscribe(witness)
    shop.broker.config.broker_config.graceful_timeout = 0.1
    try:
        await shop.publish(1)
        await shop.broker.start()
        await eventually(thread.begun.is_set, timeout=20)
        await other.start()
        await shop.broker.stop()
        still = witness.of(events.StillRunning)
        renewals = len(witness.of(events.LeasesRenewed))
        await witness.wait(events.LeasesRenewed, count=renewals + 4)
        assert ([event.running for event in still], stolen, witness.of(events.Released)) == ([1], [], [])
    finally:
        thread.finish.set()
    await witness.wait(events.Handled)
    await shop.becomes()
    assert (thread.bodies, stolen) == ([1], [])
    await eventually(lambda: not shop.broker.client.queues, message="its loops have ended")


async def test_one_that_ends_in_time_is_waited_for_and_can_be_called_as_it_was_written(
    shop: EffectsShop, thread: Thread
) -> None:
    @shop.broker.subscriber("orders")
    def handle(body: int) -> int:
        thread(body)
        return body

    await shop.publish(1)
    await shop.broker.start()
    await eventually(thread.begun.is_set, timeout=20)
    thread.finish.set()
    await shop.broker.stop()
    await shop.becomes()
    assert thread.bodies == [1]
    answer: int = handle(2)
    assert answer == 2

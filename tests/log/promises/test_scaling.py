"""Changing the number of workers loses nothing, repeats nothing and keeps the order of each URI."""

import asyncio
import random

import pytest

from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, delivered, drain
from tests.waiting import eventually

URIS = [f"kafka://orders/order-{number}" for number in range(26)]


async def _publish(outbox: Outbox, numbers: range) -> None:
    for number in numbers:
        async with outbox.engine.begin() as connection:
            await outbox.publish(connection, *[OutboxMessage(uri, number) for uri in URIS])


def _in_order(collector: Collector, count: int) -> None:
    for uri in URIS:
        assert collector.of(uri) == list(range(count)), uri


async def test_from_two_workers_to_three_with_unequal_progress(outbox: Outbox) -> None:
    collector = Collector()
    await _publish(outbox, range(4))
    # One has read everything, the other three messages.
    await drain(outbox, collector, "broker", worker_id=0, num_workers=2)
    await outbox.dispatch(collector, "broker", worker_id=1, num_workers=2, batch_size=3)
    for worker in range(3):
        await drain(outbox, collector, "broker", worker_id=worker, num_workers=3)
    _in_order(collector, 4)


@pytest.mark.parametrize("seed", range(3))
async def test_any_sequence_of_numbers_of_workers_delivers_everything_once_and_in_order(
    outbox: Outbox, seed: int
) -> None:
    chance = random.Random(seed)
    collector = Collector()
    published = 0
    for _ in range(25):
        more = chance.choice([0, 0, 1])
        await _publish(outbox, range(published, published + more))
        published += more
        count = chance.choice([1, 2, 3, 4, 7, 16])
        await outbox.dispatch(
            collector, "broker", worker_id=chance.randrange(count), num_workers=count, batch_size=chance.randint(1, 20)
        )
    await drain(outbox, collector, "broker")
    _in_order(collector, published)


async def test_a_group_of_many_spans_goes_on_as_one(outbox: Outbox) -> None:
    collector = Collector()
    await _publish(outbox, range(2))
    for worker in range(16):
        await outbox.dispatch(collector, "broker", worker_id=worker, num_workers=16, batch_size=1 + worker % 3)
    await drain(outbox, collector, "broker")
    _in_order(collector, 2)
    assert await delivered(outbox, "broker", worker_id=3, num_workers=5) == []


@pytest.mark.slow
async def test_members_that_come_and_go_while_messages_flow(outbox: Outbox) -> None:
    collector = Collector()
    stops: list[asyncio.Event] = []
    tasks: list[asyncio.Task[None]] = []

    def start(concurrency: int) -> None:
        stops.append(asyncio.Event())
        running = outbox.run(collector, "broker", concurrency=concurrency, stop_event=stops[-1], poll_interval=0.2)
        tasks.append(asyncio.create_task(running))

    count = 0
    for concurrency in (1, 3, 2):
        start(concurrency)
        await _publish(outbox, range(count, count + 10))
        count += 10
    await eventually(lambda: len(collector.messages) > 26)
    for stop in stops[:2]:
        stop.set()
        await _publish(outbox, range(count, count + 10))
        count += 10
    await eventually(lambda: len(collector.messages) >= count * len(URIS))
    stops[2].set()
    await asyncio.wait_for(asyncio.gather(*tasks), 30)
    _in_order(collector, count)


async def test_from_fixed_shares_to_members_and_back(outbox: Outbox) -> None:
    collector = Collector()
    await _publish(outbox, range(2))
    for worker in (0, 1):
        await outbox.dispatch(collector, "broker", worker_id=worker, num_workers=3, batch_size=5)
    stop = asyncio.Event()
    running = asyncio.create_task(outbox.run(collector, "broker", concurrency=2, stop_event=stop, poll_interval=0.2))
    await eventually(lambda: len(collector.messages) >= 2 * len(URIS))
    stop.set()
    await asyncio.wait_for(running, 30)
    await _publish(outbox, range(2, 4))
    for worker in range(5):
        await drain(outbox, collector, "broker", worker_id=worker, num_workers=5)
    _in_order(collector, 4)

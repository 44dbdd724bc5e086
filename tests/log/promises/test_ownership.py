"""Every URI is owned by exactly one of the workers, however many there are, and none is owned by nobody."""

import asyncio

import pytest

from faststream_outbox._internal.log.sharing.slots import partition
from faststream_outbox.log import Outbox, OutboxMessage, slot_of
from tests.cases import each
from tests.log.opened import Collector, ask, drain
from tests.waiting import eventually

KEYS = [f"kafka://orders/order-{number}" for number in range(1000)]


@each("workers", [1, 2, 3, 4, 8, 16, 255, 256])
def test_every_uri_is_owned_by_exactly_one_of_the_workers(workers: int) -> None:
    shares = [range(lo, hi + 1) for lo, hi in (partition(worker, workers) for worker in range(workers))]
    owners = [[slot_of(uri) in share for share in shares].count(True) for uri in KEYS]
    assert owners == [1] * len(KEYS)


@each("workers", [1, 2, 3, 7, 8, 16, 255, 256])
def test_shares_of_the_workers_are_every_slot_once_and_about_equal(workers: int) -> None:
    slots: list[int] = []
    sizes: list[int] = []
    for worker in range(workers):
        lo, hi = partition(worker, workers)
        slots += range(lo, hi + 1)
        sizes.append(hi - lo + 1)
    assert slots == list(range(256))
    assert max(sizes) - min(sizes) <= 1


def test_no_share_of_two_to_sixteen_is_left_without_work() -> None:
    for workers in range(2, 17):
        counts = [0] * workers
        for uri in KEYS:
            counts[slot_of(uri) * workers // 256] += 1
        assert min(counts) > len(KEYS) / workers / 2, (workers, counts)


async def test_the_slot_is_the_same_in_sql_and_in_python(outbox: Outbox) -> None:
    uris = [*KEYS[:50], "é漢😀", "a", " ", "%_\\"]
    rows = await ask(
        outbox.engine,
        "select u, get_byte(decode(md5(convert_to(u, 'UTF8')), 'hex'), 7) from unnest(cast(:uris as text[])) u",
        uris=uris,
    )
    assert {row[0]: row[1] for row in rows} == {uri: slot_of(uri) for uri in uris}


async def test_the_slot_is_written_at_publishing(outbox: Outbox) -> None:
    async with outbox.engine.begin() as connection:
        await outbox.publish(connection, *[OutboxMessage(uri, 1) for uri in KEYS])
    rows = await ask(outbox.engine, "select uri, slot from outbox")
    assert {row[0]: row[1] for row in rows} == {uri: slot_of(uri) for uri in KEYS}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3, 4, 8])
async def test_workers_deliver_every_message_once_between_them(outbox: Outbox, workers: int) -> None:
    async with outbox.engine.begin() as connection:
        await outbox.publish(connection, *[OutboxMessage(uri, uri) for uri in KEYS])
    collector = Collector()
    for worker in range(workers):
        await drain(outbox, collector, "broker", worker_id=worker, num_workers=workers)
    assert sorted(collector.payloads) == sorted(KEYS)


@pytest.mark.slow
async def test_four_coroutines_deliver_every_message_once_between_them(outbox: Outbox) -> None:
    for _ in range(4):
        async with outbox.engine.begin() as connection:
            await outbox.publish(connection, *[OutboxMessage(uri, uri) for uri in KEYS])
    collector, stop = Collector(), asyncio.Event()
    running = asyncio.create_task(outbox.run(collector, "broker", concurrency=4, stop_event=stop))
    await eventually(lambda: len(collector.messages) >= 4 * len(KEYS))
    stop.set()
    await asyncio.wait_for(running, 30)
    assert sorted(collector.payloads) == sorted(KEYS * 4)

"""The ordered log: `run()`, its partitions, and the async iterator."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from faststream_outbox.log import OutboxMessage
from tests.contract.running import run
from tests.contract.shop import Shop
from tests.waiting import eventually

LIMIT = 20.0

DEFAULT = """
stop_event = asyncio.Event()
# Single coroutine, single process (default)
await outbox.run(
    subscriber=send_to_broker,
    consumer_group="broker",
    uri="kafka://orders",
    poll_interval=1.0,
    stop_event=stop_event,
)
"""

COROUTINES = """
# Multiple coroutines in single process (4 partitions)
await outbox.run(subscriber, consumer_group="broker", uri="kafka://orders", concurrency=4)
"""

PROCESSES = [
    # Process 0 of 3
    """
await outbox.run(subscriber, consumer_group="broker", uri="kafka://orders", process_id=0, num_processes=3)
""",
    # Process 1 of 3
    """
await outbox.run(subscriber, consumer_group="broker", uri="kafka://orders", process_id=1, num_processes=3)
""",
    # Process 2 of 3
    """
await outbox.run(subscriber, consumer_group="broker", uri="kafka://orders", process_id=2, num_processes=3)
""",
]

BOTH = [
    # Process 0: handles partitions 0, 1
    'await outbox.run(subscriber, consumer_group="broker", uri="kafka://orders", '
    "process_id=0, num_processes=2, concurrency=2)",
    # Process 1: handles partitions 2, 3
    'await outbox.run(subscriber, consumer_group="broker", uri="kafka://orders", '
    "process_id=1, num_processes=2, concurrency=2)",
]

ITERATOR = """
async for message in outbox:
    await send_to_broker(message)
    # Position is updated after yield returns
"""

Send = Callable[[OutboxMessage], Awaitable[None]]


def start(snippet: str, shop: Shop, **names: Any) -> asyncio.Task[dict[str, Any]]:
    return asyncio.create_task(run(snippet, {**shop.names, "asyncio": asyncio, **names}))


async def end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Witness:
    """A subscriber that notes who handled what, and whether two handled one URI at once."""

    def __init__(self) -> None:
        self.handled: list[tuple[str, Any]] = []
        self.busy: set[str] = set()
        self.overlaps: list[str] = []

    async def __call__(self, message: OutboxMessage) -> None:
        if message.uri in self.busy:
            self.overlaps.append(message.uri)
        self.busy.add(message.uri)
        await asyncio.sleep(0.001)
        self.busy.discard(message.uri)
        self.handled.append((message.uri, message.payload))

    @property
    def by_uri(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for uri, payload in self.handled:
            found.setdefault(uri, []).append(payload)
        return found


async def _keys(shop: Shop, keys: int, each: int) -> dict[str, list[int]]:
    uris = [f"kafka://orders/order-{number}" for number in range(keys)]
    for number in range(each):
        async with shop.pool.begin() as session:
            await shop.outbox.publish(session, *[OutboxMessage(uri, number) for uri in uris])
    return {uri: list(range(each)) for uri in uris}


async def test_run_handles_what_is_there_and_what_comes_until_it_is_told_to_stop(shop: Shop) -> None:
    witness, stop = Witness(), asyncio.Event()
    await shop.put("kafka://orders", 1)
    running = start(DEFAULT.replace("asyncio.Event()", "stop"), shop, send_to_broker=witness, stop=stop)
    await eventually(lambda: witness.handled == [("kafka://orders", 1)])
    await shop.put("kafka://invoices", 2)
    await shop.put("kafka://orders/order-123", 3)
    await eventually(lambda: witness.handled[1:] == [("kafka://orders/order-123", 3)])
    stop.set()
    await asyncio.wait_for(running, LIMIT)


async def test_run_finishes_the_message_in_hand_before_it_stops(shop: Shop) -> None:
    began, go_on, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    finished: list[int] = []

    async def slow(message: OutboxMessage) -> None:
        began.set()
        await go_on.wait()
        finished.append(message.payload)

    await shop.put("kafka://orders", 1, 2)
    running = start(DEFAULT.replace("asyncio.Event()", "stop"), shop, send_to_broker=slow, stop=stop)
    await asyncio.wait_for(began.wait(), LIMIT)
    stop.set()
    # Stopping has begun when the consumer refuses further messages.
    await eventually(lambda: all(member.is_stopping for member in shop.outbox.client.members))
    go_on.set()
    await asyncio.wait_for(running, LIMIT)
    assert finished == [1]
    assert await shop.payloads("broker", "kafka://orders") == [2]


async def test_run_without_a_stop_event_runs_until_cancelled(shop: Shop) -> None:
    witness = Witness()
    await shop.put("kafka://orders", 1)
    running = asyncio.create_task(shop.outbox.run(witness, consumer_group="broker"))
    await eventually(lambda: witness.handled)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    # Its slots are free at once, and its position is kept.
    await shop.put("kafka://orders", 2)
    assert await shop.payloads("broker") == [2]


async def test_four_coroutines_handle_every_message_once_and_each_key_in_order(shop: Shop) -> None:
    witness = Witness()
    published = await _keys(shop, keys=40, each=5)
    running = start(COROUTINES, shop, subscriber=witness)
    await eventually(lambda: len(witness.handled) >= 200, timeout=LIMIT)
    await end(running)
    assert witness.by_uri == published
    assert witness.overlaps == []


async def test_four_coroutines_handle_four_messages_at_a_time(shop: Shop) -> None:
    gate = asyncio.Event()
    inside: set[str] = set()

    async def hold(message: OutboxMessage) -> None:
        inside.add(message.uri)
        await gate.wait()

    await _keys(shop, keys=64, each=1)
    running = start(COROUTINES, shop, subscriber=hold)
    await eventually(lambda: len(inside) == 4, timeout=LIMIT)
    gate.set()
    await eventually(lambda: len(inside) == 64, timeout=LIMIT)
    await end(running)


@pytest.mark.parametrize(
    "snippets",
    [pytest.param(PROCESSES, id="3 processes"), pytest.param(BOTH, id="2 processes of 2 coroutines")],
)
async def test_processes_handle_their_own_partitions_and_together_everything(shop: Shop, snippets: list[str]) -> None:
    witnesses = [Witness() for _ in snippets]
    published = await _keys(shop, keys=60, each=4)
    running = [start(snippet, shop, subscriber=witness) for snippet, witness in zip(snippets, witnesses, strict=True)]
    await eventually(lambda: sum(len(witness.handled) for witness in witnesses) >= 240, timeout=LIMIT)
    await end(*running)
    handled = [witness.by_uri for witness in witnesses]
    assert {uri: numbers for share in handled for uri, numbers in share.items()} == published
    assert sum(len(share) for share in handled) == 60, "a URI was handled by two processes"
    assert all(handled)


async def test_a_process_alone_handles_its_own_partitions_only(shop: Shop) -> None:
    published = await _keys(shop, keys=60, each=1)
    shares: list[set[str]] = []
    for snippet in PROCESSES:
        witness = Witness()
        running = start(snippet, shop, subscriber=witness)

        async def has_read_all(witness: Witness = witness) -> bool:
            behind = await shop.outbox.lag_by_slot("broker", "kafka://orders")
            own = {slot for slot in behind if slot * 3 // 256 == len(shares)}
            return bool(witness.handled) and not own

        await eventually(has_read_all, timeout=LIMIT)
        await end(running)
        shares.append({*witness.by_uri})
    assert set().union(*shares) == set(published)
    assert sum(len(share) for share in shares) == 60


async def test_the_number_of_partitions_is_processes_times_coroutines(shop: Shop) -> None:
    gate = asyncio.Event()

    async def hold(message: OutboxMessage) -> None:
        await gate.wait()

    await _keys(shop, keys=64, each=1)
    running = [start(snippet, shop, subscriber=hold) for snippet in BOTH]

    async def held() -> bool:
        lags = await shop.outbox.lag("broker", "kafka://orders")
        slots = sorted(lag.slots for lag in lags if lag.owner is not None)
        return slots == [(0, 63), (64, 127), (128, 191), (192, 255)]

    await eventually(held, timeout=LIMIT)
    gate.set()
    await end(*running)


async def test_the_iterator_hands_out_messages_in_order_for_ever(shop: Shop) -> None:
    witness = Witness()
    await shop.put("kafka://orders", 1, 2)
    running = start(ITERATOR, shop, send_to_broker=witness)
    await eventually(lambda: len(witness.handled) == 2)
    await shop.put("kafka://invoices", 3)
    await eventually(lambda: len(witness.handled) == 3)
    await end(running)
    assert [payload for _, payload in witness.handled] == [1, 2, 3]


async def test_the_iterators_position_is_updated_when_the_next_message_is_asked_for(shop: Shop) -> None:
    await shop.put("kafka://orders", 1, 2, 3)
    iterator = aiter(shop.outbox)
    assert [(await anext(iterator)).payload, (await anext(iterator)).payload] == [1, 2]
    await iterator.aclose()  # type: ignore[attr-defined]
    # The second was in flight and not done with: it comes again.
    assert await shop.payloads() == [2, 3]


async def test_the_message_at_which_the_loop_is_left_comes_again(shop: Shop) -> None:
    await shop.put("kafka://orders", 1, 2, 3)
    async for message in shop.outbox:
        if message.payload == 2:
            break
    await eventually(lambda: not shop.outbox.client.members)
    assert await shop.payloads() == [2, 3]

"""How messages reach handlers."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from faststream.exceptions import StopConsume

from faststream_outbox import ConstantRetry, OutboxBroker
from faststream_outbox.errors import InvalidOption, OutboxWarning
from tests.broker.conformance.ways import Seen, Way, failing, noting
from tests.waiting import eventually

LATER = ConstantRetry(delay_seconds=1000)


@pytest.mark.parametrize("is_one_subscriber", [True, False])
async def test_one_handler_serves_several_queues(
    way: Way, broker: OutboxBroker, seen: Seen, *, is_one_subscriber: bool
) -> None:
    if is_one_subscriber:
        noting(broker, seen, ["orders", "bills"])
    else:
        broker.subscriber("bills")(noting(broker, seen))
    async with way.running(broker):
        await way.publish("order", "orders")
        await way.publish("bill", "bills")
        assert sorted(await seen.first(2)) == ["bill", "order"]


def test_queue_named_twice_in_a_subscriber_is_refused() -> None:
    with pytest.raises(InvalidOption, match="twice"):
        Way("memory").broker().subscriber(["orders", "orders"])


def test_dropped_subscriber_is_forgotten() -> None:
    broker = Way("memory").broker()
    broker.subscriber("orders", persistent=False)
    assert not list(broker.subscribers)


async def test_message_of_a_queue_with_two_subscribers_goes_to_one_of_them(
    way: Way, broker: OutboxBroker, seen: Seen
) -> None:
    noting(broker, seen)
    with pytest.warns(OutboxWarning, match="two subscribers"):
        noting(broker, seen)
    async with way.running(broker):
        for number in range(10):
            await way.publish(number, "orders")
        await seen.first(10)
        await way.empty()
    assert sorted(seen) == list(range(10))


async def test_message_of_a_queue_without_a_subscriber_stays(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen)
    async with way.running(broker):
        await way.publish(1, "bills")
        assert [(row["queue"], row["deliveries_count"]) for row in await way.rows()] == [("bills", 0)]


async def test_filters_choose_the_handler(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    subscriber = broker.subscriber("orders")

    async def is_json(message: Any) -> bool:
        return bool(message.content_type == "application/json")

    @subscriber(filter=is_json)
    async def of_json(body: Any) -> None:
        seen("json", body)

    @subscriber
    async def of_the_rest(body: Any) -> None:
        seen("rest", body)

    async with way.running(broker):
        await way.publish({"id": 1}, "orders")
        await way.publish("text", "orders")
        assert sorted(await seen.first(2)) == [("json", {"id": 1}), ("rest", "text")]


async def test_message_that_no_filter_takes_is_not_lost(way: Way, broker: OutboxBroker) -> None:
    async def never(message: Any) -> bool:
        return False

    @broker.subscriber("orders", retry_strategy=LATER)(filter=never)
    async def handle(body: Any) -> None: ...

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        assert (await way.attempted())["queue"] == "orders"


async def test_subscriber_added_while_the_broker_runs_is_stopped_at_the_end_of_its_block(live: Way, seen: Seen) -> None:
    broker = live.broker()
    async with live.running(broker):
        subscriber = broker.subscriber("orders", persistent=False)

        @subscriber
        async def handle(body: int) -> None:
            seen(body)

        async with subscriber:
            await live.publish(1, "orders")
            assert await seen.first() == [1]
            await live.empty()
        assert not subscriber.running
        await live.publish(2, "orders")
        assert [row["deliveries_count"] for row in await live.rows()] == [0]


async def test_stop_consume_ends_the_subscriber(live: Way, seen: Seen) -> None:
    broker = live.broker()
    failing(broker, error=StopConsume(), retry_strategy=LATER)
    (subscriber,) = broker.subscribers
    noting(broker, seen, "bills")
    async with live.running(broker):
        await live.publish(1, "orders")
        await live.attempted()
        await eventually(lambda: not subscriber.running)
        await live.publish(2, "orders")
        for bill in range(3, 6):
            await live.publish(bill, "bills")
            await seen.first(bill - 2)
        counts = {row["payload"]: row["deliveries_count"] for row in await live.rows() if row["queue"] == "orders"}
        assert counts == {b"1": 1, b"2": 0}


async def test_handler_cut_off_by_a_stop_gives_its_message_back(live: Way, seen: Seen) -> None:
    broker = live.broker(graceful_timeout=0.01)

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)
        await asyncio.Event().wait()

    async with live.running(broker):
        await live.publish(1, "orders")
        await seen.first()
    (row,) = await live.rows()
    assert (row["acquired_token"], row["attempts_count"], row["deliveries_count"]) == (None, 0, 1)


VARIABLE: ContextVar[int] = ContextVar("variable", default=0)


@pytest.mark.topics
async def test_each_message_has_a_context_of_its_own(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    @broker.subscriber("orders")
    @broker.subscriber(topic="news", group="billing")
    async def handle(body: int) -> None:
        seen(VARIABLE.get())
        VARIABLE.set(body)

    async with way.running(broker):
        for number in (1, 2):
            await way.publish(number, "orders", key="a")
            await way.publish(number, topic="news", key="a")
        assert await seen.first(4) == [0, 0, 0, 0]
    assert VARIABLE.get() == 0

"""How messages reach handlers."""

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest
from faststream.exceptions import FeatureNotSupportedException, StopConsume

from faststream_outbox import ConstantRetry, TestOutboxBroker
from faststream_outbox.annotations import OutboxMessage
from faststream_outbox.errors import InvalidOption, OutboxWarning
from faststream_outbox.testing import fake_session
from tests.broker.conformance.ways import Seen, Way
from tests.waiting import eventually

LATER = ConstantRetry(delay_seconds=1000)


async def test_handler_gets_the_message(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    async def handle(body: dict[str, int]) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish({"id": 1}, "orders")
        assert await seen.first() == [{"id": 1}]
        await way.empty()


async def test_sync_handler_gets_the_message(way: Way) -> None:
    broker = way.broker()
    seen: list[Any] = []

    @broker.subscriber("orders")
    def handle(body: int) -> None:
        seen.append(body)

    async with way.running(broker):
        await way.publish(1, "orders")
        await way.empty()
    assert seen == [1]


async def test_one_subscriber_serves_several_queues(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber(["orders", "bills"])
    async def handle(body: str) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish("order", "orders")
        await way.publish("bill", "bills")
        assert sorted(await seen.first(2)) == ["bill", "order"]


async def test_one_handler_has_two_subscribers(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    @broker.subscriber("bills")
    async def handle(body: str) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish("order", "orders")
        await way.publish("bill", "bills")
        assert sorted(await seen.first(2)) == ["bill", "order"]


async def test_queue_named_twice_in_a_subscriber_is_refused(way: Way) -> None:
    with pytest.raises(InvalidOption, match="twice"):
        way.broker().subscriber(["orders", "orders"])


async def test_message_of_a_queue_with_two_subscribers_goes_to_one_of_them(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    async def first(body: int) -> None:
        seen(body)

    with pytest.warns(OutboxWarning, match="two subscribers"):

        @broker.subscriber("orders")
        async def second(body: int) -> None:
            seen(body)

    async with way.running(broker):
        for number in range(10):
            await way.publish(number, "orders")
        await seen.first(10)
        await way.empty()
    assert sorted(seen) == list(range(10))


async def test_message_of_a_queue_without_a_subscriber_stays(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    async def handle(body: int) -> None: ...

    async with way.running(broker):
        await way.publish(1, "bills")
        assert [(row["queue"], row["deliveries_count"]) for row in await way.rows()] == [("bills", 0)]


async def test_filters_choose_the_handler(way: Way, seen: Seen) -> None:
    broker = way.broker()
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


async def test_message_that_no_filter_takes_is_not_lost(way: Way) -> None:
    broker = way.broker()

    async def never(message: Any) -> bool:
        return False

    @broker.subscriber("orders", retry_strategy=LATER)(filter=never)
    async def handle(body: Any) -> None: ...

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        assert (await way.attempted())["queue"] == "orders"


async def test_subscriber_can_be_added_while_the_broker_runs(live: Way, seen: Seen) -> None:
    broker = live.broker()
    async with live.running(broker):
        subscriber = broker.subscriber("orders", persistent=False)

        @subscriber
        async def handle(body: int) -> None:
            seen(body)

        await subscriber.start()
        await live.publish(1, "orders")
        assert await seen.first() == [1]
        await subscriber.stop()


async def test_subscriber_is_stopped_at_the_end_of_its_block(live: Way, seen: Seen) -> None:
    broker = live.broker()
    async with live.running(broker):
        subscriber = broker.subscriber("orders", persistent=False)

        @subscriber
        async def handle(body: int) -> None:
            seen(body)

        async with subscriber:
            await live.publish(1, "orders")
            await seen.first()
            await live.empty()
        assert not subscriber.running
        await live.publish(2, "orders")
        assert [row["deliveries_count"] for row in await live.rows()] == [0]


async def test_dropped_subscriber_is_forgotten(way: Way) -> None:
    broker = way.broker()
    broker.subscriber("orders", persistent=False)
    assert not list(broker.subscribers)


async def test_get_one_is_refused_and_says_what_to_use(way: Way) -> None:
    subscriber = way.broker().subscriber("orders")
    with pytest.raises(FeatureNotSupportedException, match="fetch_unprocessed"):
        await subscriber.get_one()


async def test_iteration_is_refused_and_says_what_to_use(way: Way) -> None:
    subscriber = way.broker().subscriber("orders")
    with pytest.raises(FeatureNotSupportedException, match="fetch_unprocessed"):
        async for _ in subscriber:
            pass


async def test_stop_consume_ends_the_subscriber(live: Way, seen: Seen) -> None:
    broker = live.broker()
    subscriber = broker.subscriber("orders", retry_strategy=LATER)

    @subscriber
    async def handle(body: int) -> None:
        seen(body)
        raise StopConsume

    @broker.subscriber("bills")
    async def of_another(body: int) -> None:
        seen(body)

    async with live.running(broker):
        await live.publish(1, "orders")
        await live.attempted()
        await eventually(lambda: not subscriber.running)
        await live.publish(2, "orders")
        for bill in range(3, 6):
            await live.publish(bill, "bills")
            await seen.first(bill - 1)
        counts = {row["payload"]: row["deliveries_count"] for row in await live.rows() if row["queue"] == "orders"}
        assert counts == {b"1": 1, b"2": 0}
    assert seen == [1, 3, 4, 5]


async def test_handler_that_cancels_itself_has_failed(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", retry_strategy=LATER)
    async def handle(body: int) -> None:
        raise asyncio.CancelledError

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.attempted()


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


async def test_message_carries_its_envelope(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    async def handle(body: str, message: OutboxMessage) -> None:
        seen((message.correlation_id, message.headers["tenant"], message.raw_message.key, message.raw_message.priority))

    async with way.running(broker):
        await way.publish("x", "orders", correlation_id="c1", headers={"tenant": "a"}, key="k", priority=3)
        assert await seen.first() == [("c1", "a", "k", 3)]


async def test_batch_handler_gets_a_list(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders", batch=True, batch_size=10)
    async def handle(bodies: list[int]) -> None:
        seen(bodies)

    async with way.running(broker):
        await way.publish_batch(1, 2, 3, queue="orders")
        await way.empty()
    assert sorted(number for bodies in seen for number in bodies) == [1, 2, 3]


async def test_test_broker_and_real_one_can_follow_each_other(seen: Seen) -> None:
    broker = Way("memory").broker()

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        seen(body)

    for number in range(2):
        async with TestOutboxBroker(broker) as tested:
            await tested.publish(number, "orders", session=fake_session())
    assert seen == [0, 1]


VARIABLE: ContextVar[int] = ContextVar("variable", default=0)


@pytest.mark.topics
async def test_each_message_has_a_context_of_its_own(way: Way, seen: Seen) -> None:
    broker = way.broker()

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

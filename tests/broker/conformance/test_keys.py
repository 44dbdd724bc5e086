"""Messages of one key follow each other; what holds a key holds nothing else."""

from contextlib import suppress
from typing import Any

import pytest
from faststream import AckPolicy

from faststream_outbox import ConstantRetry, NoRetry
from faststream_outbox import OutboxBroker as Broker
from faststream_outbox.annotations import OutboxBroker, OutboxMessage
from tests.broker.conformance.differences import AGAIN, differs
from tests.broker.conformance.ways import Seen, Way, noting

LATER = ConstantRetry(delay_seconds=1000)
pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


def _fails_on_one(broker: Any, seen: Seen, **options: Any) -> None:
    """A handler that sees everything and fails on the body 1."""

    @broker.subscriber("orders", **{"retry_strategy": LATER, **options})
    async def handle(body: int) -> None:
        seen(body)
        if body == 1:
            raise ValueError("broken")


async def test_messages_of_a_key_are_handled_in_order(way: Way, broker: Broker, seen: Seen) -> None:
    noting(broker, seen, max_workers=4)
    async with way.running(broker):
        await way.publish_batch(*range(10), queue="orders", key="a")
        assert await seen.first(10) == list(range(10))


@pytest.mark.parametrize("is_batch", [False, True])
async def test_failed_message_holds_its_key_and_nothing_else(
    way: Way, broker: Broker, seen: Seen, *, is_batch: bool
) -> None:
    _fails_on_one(broker, seen)
    keys = {1: "a", 2: "a", 3: "b", 4: None}
    async with way.running(broker):
        if is_batch:
            with suppress(ValueError):
                await way.publish_batch(*keys, queue="orders", keys=[*keys.values()])
        else:
            for body, key in keys.items():
                await way.publish_to_failing(body, "orders", key=key)
                await seen.first()
        assert sorted(await seen.first(3)) == [1, 3, 4]
        await way.becomes("orders", b"1", b"2")
    assert len(seen) == 3


async def test_snoozed_message_holds_its_key(way: Way, broker: Broker, seen: Seen) -> None:
    @broker.subscriber("orders", ack_policy=AckPolicy.MANUAL)
    async def handle(body: int, message: OutboxMessage) -> None:
        seen(body)
        await (message.snooze(1000) if body == 1 else message.ack())

    async with way.running(broker):
        await way.publish(1, "orders", key="a")
        await way.publish(2, "orders", key="a")
        await way.publish(3, "orders", key="b")
        assert sorted(await seen.first(2)) == [1, 3]
        await way.becomes("orders", b"1", b"2")
    assert len(seen) == 2


@pytest.mark.parametrize(("on_dead", "handled", "left"), [("continue", [1, 2, 3], []), ("block", [1, 3], [b"2"])])
async def test_dead_letter_lets_its_key_go_on_or_holds_it_where_asked(
    way: Way, broker: Broker, seen: Seen, on_dead: str, handled: list[int], left: list[bytes]
) -> None:
    _fails_on_one(broker, seen, retry_strategy=NoRetry(), on_dead=on_dead)
    async with way.running(broker):
        await way.publish_to_failing(1, "orders", key="a")
        await way.died()
        await way.publish(2, "orders", key="a")
        await way.publish(3, "orders", key="b")
        assert sorted(await seen.first(len(handled))) == handled
        await way.becomes("orders", *left)
    assert len(seen) == len(handled)


async def test_key_holds_in_its_own_queue_only(way: Way, broker: Broker, seen: Seen) -> None:
    _fails_on_one(broker, seen)
    noting(broker, seen, "bills")
    async with way.running(broker):
        await way.publish_to_failing(1, "orders", key="a")
        await way.publish(2, "bills", key="a")
        assert sorted(await seen.first(2)) == [1, 2]


async def test_message_of_its_own_key_is_handled_after_the_handler(way: Way, seen: Seen) -> None:
    broker = way.broker(autocommit=True)

    @broker.subscriber("orders")
    async def handle(body: int, outbox: OutboxBroker) -> None:
        seen("begins", body)
        if body < 3:
            await outbox.publish(body + 1, "orders", key="a")
        seen("ends", body)

    async with way.running(broker):
        await way.publish(1, "orders", key="a")
        reported = await seen.first(6)
        await way.empty()
    assert reported == [(what, body) for body in (1, 2, 3) for what in ("begins", "ends")]


async def test_batch_has_a_key_in_order(way: Way, broker: Broker, seen: Seen) -> None:
    @broker.subscriber("orders", batch=True)
    async def handle(bodies: list[int]) -> None:
        for body in bodies:
            seen(body)

    async with way.running(broker):
        await way.publish_batch(1, 2, 3, queue="orders", key="a")
        assert await seen.first(3) == [1, 2, 3]
        await way.empty()


@differs(AGAIN)
async def test_key_goes_on_when_a_timer_that_failed_is_taken_back(way: Way, broker: Broker, seen: Seen) -> None:
    _fails_on_one(broker, seen, min_fetch_interval=3600, max_fetch_interval=3600)
    async with way.running(broker):
        await way.publish_to_failing(1, "orders", key="a", timer_id="t")
        await seen.first()
        await way.becomes("orders", b"1")
        await way.publish(2, "orders", key="a")
        async with way.transaction() as session:
            assert await broker.cancel_timer(queue="orders", timer_id="t", session=session)
        assert await seen.first(2) == [1, 2]
        await way.empty()


@differs(AGAIN)
async def test_key_goes_on_after_its_retry(way: Way, broker: Broker, seen: Seen) -> None:
    @broker.subscriber("orders", retry_strategy=ConstantRetry(delay_seconds=0.02))
    async def handle(body: int) -> None:
        seen(body)
        if len(seen) == 1:
            raise ValueError("broken")

    async with way.running(broker):
        await way.publish_to_failing(1, "orders", key="a")
        await way.publish(2, "orders", key="a")
        assert await seen.first(3) == [1, 1, 2]
        await way.empty()

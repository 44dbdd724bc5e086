"""Failures in a topic: strategies, parking, keys that wait for an operator."""

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import RejectMessage

from faststream_outbox import ConstantRetry, NoRetry
from faststream_outbox._internal.events.types import Died, Retried
from faststream_outbox.annotations import OutboxMessage
from tests.broker.topics.stage import Stage

pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


def failing(stage: Stage, *bad: Any, **options: Any) -> None:
    """A subscriber whose handler notes every body, and fails with these."""

    @stage.broker.subscriber(topic="orders", group="billing", **options)
    async def handle(body: int, message: OutboxMessage) -> None:
        stage.seen.append(body)
        if body in bad:
            raise ValueError(f"attempt {message.raw_message.deliveries_count}")


async def test_strategy_says_how_often(stage: Stage) -> None:
    failing(stage, 1, retry_strategy=ConstantRetry(delay_seconds=0.02, max_attempts=3))
    await stage.broker.start()
    await stage.publish(1, key="order-1")
    (parked,) = await stage.has_deferred("parked")
    assert stage.seen == [1, 1, 1]
    assert (parked.attempts, parked.error_message) == (3, "attempt 3")


async def test_event_tells_the_delay_of_the_strategy(stage: Stage) -> None:
    failing(stage, 1, retry_strategy=ConstantRetry(delay_seconds=500))
    await stage.broker.start()
    await stage.publish(1, key="order-1")
    event = await stage.witness.wait(Retried)
    assert event.delay_seconds == 500
    assert isinstance(event.error, ValueError)


async def test_event_tells_that_the_strategy_gave_up(stage: Stage) -> None:
    failing(stage, 1, retry_strategy=NoRetry())
    await stage.broker.start()
    await stage.publish(1, key="order-1")
    event = await stage.witness.wait(Died)
    assert event.reason == "retry_terminal"
    assert isinstance(event.error, ValueError)


async def test_strategy_that_raises_parks_the_message(stage: Stage) -> None:
    class Broken:
        def get_next_attempt_delay(self, **_: Any) -> float | None:
            raise RuntimeError("broken strategy")

    failing(stage, 1, retry_strategy=Broken())
    await stage.broker.start()
    await stage.publish(1, key="order-1")
    (parked,) = await stage.has_deferred("parked")
    assert parked.error_message == "broken strategy"


async def test_snooze_uses_up_no_attempt(stage: Stage) -> None:
    @stage.broker.subscriber(
        topic="orders", group="billing", retry_strategy=ConstantRetry(delay_seconds=0.01, max_attempts=2)
    )
    async def handle(body: int, message: OutboxMessage) -> None:
        stage.seen.append(message.raw_message.deliveries_count)
        if len(stage.seen) < 6:
            await message.snooze(0.01)

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.saw(6)
    await stage.caught_up()
    assert stage.seen == [1] * 6


async def test_parked_message_lets_its_key_go_on(stage: Stage) -> None:
    failing(stage, 1, retry_strategy=NoRetry())
    await stage.broker.start()
    await stage.publish(1, 2, 3, key="order-1")
    await stage.has_deferred("parked")
    assert await stage.saw(3) == [1, 2, 3]


async def test_blocking_subscriber_holds_the_key_of_what_is_parked(stage: Stage) -> None:
    failing(stage, 1, retry_strategy=NoRetry(), on_dead="block")
    await stage.broker.start()
    await stage.publish(1, 2, 3, 4, keys=["1", "1", "1", "2"])
    parked, *behind = await stage.has_deferred("parked", "deferred", "deferred")
    assert [each.key for each in behind] == [parked.key] * 2
    assert await stage.saw(2) == [1, 4]


async def test_blocked_key_stays_so_for_the_next_process(stage: Stage) -> None:
    failing(stage, 1, retry_strategy=NoRetry(), on_dead="block")
    await stage.broker.start()
    await stage.publish(1, 2, key="1")
    await stage.has_deferred("parked", "deferred")
    await stage.broker.stop()
    stage.replace()
    failing(stage, 1, retry_strategy=NoRetry(), on_dead="block")
    await stage.broker.start()
    await stage.publish(3, 4, keys=["1", "2"])
    await stage.has_deferred("parked", "deferred", "deferred")
    await stage.saw(2)
    assert stage.seen == [1, 4]


async def test_resolving_lets_a_blocked_key_go_on_in_order(stage: Stage) -> None:
    failing(stage, 1, retry_strategy=NoRetry(), on_dead="block")
    await stage.broker.start()
    await stage.publish(1, 2, 3, key="order-1")
    parked, *_ = await stage.has_deferred("parked", "deferred", "deferred")
    await stage.outbox.parked.resolve("billing", parked.position, uri="orders")
    await stage.caught_up()
    assert stage.seen == [1, 2, 3]


async def test_parked_message_can_be_tried_again(stage: Stage) -> None:
    is_repaired = False

    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)
        if not is_repaired:
            raise RejectMessage

    await stage.broker.start()
    (position,) = await stage.publish(1, key="order-1")
    await stage.has_deferred("parked")
    is_repaired = True
    assert await stage.outbox.parked.retry("billing", "orders") == [position]
    await stage.caught_up()
    assert stage.seen == [1, 1]


async def test_retry_goes_on_with_the_next_process(stage: Stage) -> None:
    failing(stage, 1, retry_strategy=ConstantRetry(delay_seconds=0.3, max_attempts=2))
    await stage.broker.start()
    await stage.publish(1, 2, key="order-1")
    await stage.has_deferred("retry", "deferred")
    await stage.broker.stop()
    later = stage.another()

    @later.subscriber(topic="orders", group="billing")
    async def handle(body: int, message: OutboxMessage) -> None:
        stage.seen.append((body, message.raw_message.deliveries_count))

    await later.start()
    await stage.caught_up()
    assert stage.seen == [1, (1, 2), (2, 1)]


async def test_first_failure_is_remembered_for_the_strategy(stage: Stage) -> None:
    moments: list[Any] = []

    class Remembering:
        def get_next_attempt_delay(self, *, first_attempt_at: Any, attempts_count: int, **_: Any) -> float | None:
            moments.append((first_attempt_at, attempts_count))
            return 0.02 if attempts_count < 3 else None

    failing(stage, 1, retry_strategy=Remembering())
    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.has_deferred("parked")
    assert [count for _, count in moments] == [1, 2, 3]
    assert moments[1][0] == moments[2][0]


@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_handler_that_takes_longer_than_it_may_has_failed(stage: Stage, *, batch: bool) -> None:
    @stage.broker.subscriber(
        topic="orders", group="billing", batch=batch, handler_timeout=0.1, retry_strategy=NoRetry()
    )
    async def handle(body: Any) -> None:
        await asyncio.Event().wait()

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    (parked,) = await stage.has_deferred("parked")
    assert parked.error_type == "TimeoutError"


async def test_other_keys_go_on_while_one_waits(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", retry_strategy=ConstantRetry(delay_seconds=1000))
    async def handle(body: str) -> None:
        if body == "bad":
            raise ValueError
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish("bad", "behind", "x", "y", "z", keys=["1", "1", "2", "3", "2"])
    assert await stage.saw(3) == ["x", "y", "z"]
    await stage.has_deferred("retry", "deferred")
    await stage.publish("later", key="3")
    assert await stage.saw(4) == ["x", "y", "z", "later"]


async def test_other_groups_do_not_wait_for_a_failure(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", retry_strategy=ConstantRetry(delay_seconds=1000))
    async def bill(body: int) -> None:
        raise ValueError

    @stage.broker.subscriber(topic="orders", group="mail")
    async def mail(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish(1, 2, key="order-1")
    assert await stage.saw(2) == [1, 2]
    await stage.has_deferred("retry", "deferred")


async def test_key_goes_on_in_order_after_its_retry(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", retry_strategy=ConstantRetry(delay_seconds=0.05))
    async def handle(body: int, message: OutboxMessage) -> None:
        stage.seen.append((body, message.raw_message.deliveries_count))
        if body == 1 and message.raw_message.deliveries_count < 3:
            raise ValueError

    await stage.broker.start()
    await stage.publish(1, 2, 3, key="order-1")
    await stage.caught_up()
    assert stage.seen == [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)]


async def test_error_is_kept_with_what_is_parked(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def handle(body: int) -> None:
        raise ValueError("broken")

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    (parked,) = await stage.has_deferred("parked")
    assert (parked.error_type, parked.error_message, parked.attempts) == ("ValueError", "broken", 1)
    assert parked.traceback is not None
    assert 'raise ValueError("broken")' in parked.traceback

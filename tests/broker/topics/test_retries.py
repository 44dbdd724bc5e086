"""Failures in a topic: strategies, parking, keys that wait for an operator."""

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy

from faststream_outbox import ConstantRetry, NoRetry
from tests.broker.topics.stage import Stage

pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


def blocking(stage: Stage) -> None:
    """A group that fails with 1, whose key then waits for an operator."""
    stage.reads(1, retry_strategy=NoRetry(), on_dead="block")


async def test_strategy_that_raises_parks_the_message(stage: Stage) -> None:
    class Broken:
        def get_next_attempt_delay(self, **_: Any) -> float | None:
            raise RuntimeError("broken strategy")

    stage.reads(1, retry_strategy=Broken())
    await stage.play(1)
    (parked,) = await stage.has_deferred("parked")
    assert parked.error_message == "broken strategy"


async def test_parked_message_lets_its_key_go_on(stage: Stage) -> None:
    stage.reads(1, retry_strategy=NoRetry())
    await stage.play(1, 2, 3, key="order-1")
    await stage.has_deferred("parked")
    assert await stage.saw(3) == [1, 2, 3]


async def test_blocking_subscriber_holds_the_key_of_what_is_parked(stage: Stage) -> None:
    """Also in the next process."""
    blocking(stage)
    await stage.play(1, 2, keys=["1", "1"])
    await stage.has_deferred("parked", "deferred")
    await stage.broker.stop()
    stage.replace()
    blocking(stage)
    await stage.play(3, 4, keys=["1", "2"])
    parked, *behind = await stage.has_deferred("parked", "deferred", "deferred")
    assert [each.key for each in behind] == [parked.key] * 2
    assert await stage.saw(2) == [1, 4]


async def test_resolving_lets_a_blocked_key_go_on_in_order(stage: Stage) -> None:
    blocking(stage)
    await stage.play(1, 2, 3, key="order-1")
    parked, *_ = await stage.has_deferred("parked", "deferred", "deferred")
    await stage.outbox.parked.resolve("billing", parked.position, uri="orders")
    await stage.caught_up()
    assert stage.seen == [1, 2, 3]


async def test_retry_goes_on_with_the_next_process(stage: Stage) -> None:
    stage.reads(1, retry_strategy=ConstantRetry(delay_seconds=0.3, max_attempts=2))
    await stage.play(1, 2, key="order-1")
    await stage.has_deferred("retry", "deferred")
    await stage.broker.stop()
    later = stage.another()
    stage.reads(broker=later, notes=lambda body, message: (body, message.raw_message.deliveries_count))
    await later.start()
    await stage.caught_up()
    assert stage.seen == [1, (1, 2), (2, 1)]


async def test_first_failure_is_remembered_for_the_strategy(stage: Stage) -> None:
    moments: list[Any] = []

    class Remembering:
        def get_next_attempt_delay(self, *, first_attempt_at: Any, attempts_count: int, **_: Any) -> float | None:
            moments.append((first_attempt_at, attempts_count))
            return 0.02 if attempts_count < 3 else None

    stage.reads(1, retry_strategy=Remembering())
    await stage.play(1)
    await stage.has_deferred("parked")
    assert [count for _, count in moments] == [1, 2, 3]
    assert moments[1][0] == moments[2][0]


async def test_batch_that_takes_longer_than_it_may_has_failed(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", batch=True, handler_timeout=0.1, retry_strategy=NoRetry())
    async def handle(body: Any) -> None:
        await asyncio.Event().wait()

    await stage.play(1)
    (parked,) = await stage.has_deferred("parked")
    assert parked.error_type == "TimeoutError"


async def test_error_is_kept_with_what_is_parked(stage: Stage) -> None:
    stage.reads(1, ack_policy=AckPolicy.REJECT_ON_ERROR)
    await stage.play(1)
    (parked,) = await stage.has_deferred("parked")
    assert (parked.error_type, parked.error_message, parked.attempts) == ("ValueError", "broken", 1)
    assert 'raise ValueError("broken")' in parked.traceback

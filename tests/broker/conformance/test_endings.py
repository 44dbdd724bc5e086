"""What becomes of a message: done, tried again or dead, and what is kept of it."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage

from faststream_outbox import ConstantRetry, NoRetry
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage
from tests.broker.conformance.differences import AGAIN, differs
from tests.broker.conformance.ways import Seen, Way

LATER = ConstantRetry(delay_seconds=1000)
SOON = ConstantRetry(delay_seconds=0.02, max_attempts=3)
pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")

RAISED: dict[str, type[BaseException]] = {
    "raises": ValueError,
    "ack by exception": AckMessage,
    "nack by exception": NackMessage,
    "reject by exception": RejectMessage,
    "skips": SkipMessage,
    "is cancelled": asyncio.CancelledError,
}
ENDINGS = ["returns", *RAISED, "acks", "nacks", "rejects", "acks and raises", "nacks and raises", "rejects and raises"]
POLICIES = {
    "ack": AckPolicy.ACK,
    "nack": AckPolicy.NACK_ON_ERROR,
    "reject": AckPolicy.REJECT_ON_ERROR,
    "manual": AckPolicy.MANUAL,
}
TRIED, DEAD = "tried", "dead"
# What is not named here is done.
EXPECTED = {
    "ack": {"nack by exception": TRIED, "reject by exception": DEAD, "skips": TRIED, "is cancelled": TRIED},
    "nack": {
        "raises": TRIED, "nack by exception": TRIED, "reject by exception": DEAD, "skips": TRIED, "is cancelled": TRIED,
    },
    "reject": {
        "raises": DEAD, "nack by exception": TRIED, "reject by exception": DEAD, "skips": TRIED, "is cancelled": TRIED,
    },
    "manual": dict.fromkeys(["returns", *RAISED], TRIED),
}  # fmt: skip
OF_ALL = {"nacks": TRIED, "nacks and raises": TRIED, "rejects": DEAD, "rejects and raises": DEAD}


async def test_every_ending_under_every_policy(way: Way) -> None:
    broker = way.broker()

    def register(policy: str, ending: str) -> str:
        @broker.subscriber(f"{policy}: {ending}", ack_policy=POLICIES[policy], retry_strategy=LATER)
        async def handle(body: int, message: OutboxMessage) -> None:
            for name, decide in (("acks", message.ack), ("nacks", message.nack), ("rejects", message.reject)):
                if ending.startswith(name):
                    await decide()
            if "raises" in ending or ending in RAISED:
                raise RAISED.get(ending, ValueError)

        return f"{policy}: {ending}"

    queues = [register(policy, ending) for policy in POLICIES for ending in ENDINGS]
    wanted = {
        f"{policy}: {ending}": (OF_ALL | EXPECTED[policy]).get(ending) for policy in POLICIES for ending in ENDINGS
    }

    async def every_message_has_its_ending() -> bool:
        tried = {
            row["queue"]: TRIED for row in await way.rows() if row["last_attempt_at"] and not row["acquired_token"]
        }
        dead = {row["queue"]: DEAD for row in await way.rows(dead=True)}
        return dict.fromkeys(queues) | tried | dead == wanted and len(await way.rows()) == len(tried)

    async with way.running(broker):
        for queue in queues:
            await way.publish_to_failing(1, queue)
        await way.eventually(every_message_has_its_ending)


@differs(AGAIN)
async def test_failed_message_comes_again(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders", retry_strategy=SOON)
    async def handle(body: int, message: OutboxMessage) -> None:
        seen(message.raw_message.attempts_count, message.raw_message.deliveries_count)
        if len(seen) < 3:
            raise ValueError

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        assert await seen.first(3) == [(0, 1), (1, 2), (2, 3)]
        await way.empty()


@differs(AGAIN)
async def test_message_that_fails_too_often_is_dead(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", retry_strategy=SOON)
    async def handle(body: int) -> None:
        raise ValueError("broken")

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        letter = await way.died()
    assert (letter["failure_reason"], letter["attempts_count"], letter["deliveries_count"]) == ("retry_terminal", 3, 3)


@differs(AGAIN)
async def test_message_that_is_delivered_too_often_is_dead(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", retry_strategy=ConstantRetry(delay_seconds=0.02), max_deliveries=2)
    async def handle(body: int) -> None:
        raise ValueError("broken")

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        letter = await way.died()
    assert (letter["failure_reason"], letter["attempts_count"]) == ("max_deliveries", 2)


@differs(AGAIN)
async def test_snoozed_message_comes_again(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders", ack_policy=AckPolicy.MANUAL)
    async def handle(body: int, message: OutboxMessage) -> None:
        seen(message.raw_message.attempts_count)
        await (message.snooze(0.02) if len(seen) < 3 else message.ack())

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first(3) == [0, 0, 0]
        await way.empty()


async def test_dead_letter_keeps_what_the_message_was(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", retry_strategy=NoRetry())
    async def handle(body: int) -> None:
        raise ValueError("broken")

    async with way.running(broker):
        number = await _published(
            way, 1, headers={"tenant": "a"}, key="k", priority=3, timer_id="t", correlation_id="c"
        )
        letter = await way.died()
        await way.empty()
    kept = {name: letter[name] for name in ("queue", "payload", "key", "priority", "timer_id", "attempts_count")}
    assert kept == {
        "queue": "orders", "payload": b"1", "key": "k", "priority": 3, "timer_id": "t", "attempts_count": 1,
    }  # fmt: skip
    assert letter["headers"] == {"tenant": "a", "correlation_id": "c", "content-type": "application/json"}
    reported = {name: letter[name] for name in ("failure_reason", "last_exception", "error_type", "error_message")}
    assert reported == {
        "failure_reason": "retry_terminal", "last_exception": "ValueError('broken')", "error_type": "ValueError",
        "error_message": "broken",
    }  # fmt: skip
    assert "raise ValueError" in letter["traceback"]
    assert number in (None, letter["original_id"])


async def _published(way: Way, body: Any, queue: str = "orders", **options: Any) -> int | None:
    """Its id, where nobody is told of a failure in its place."""
    if way.is_immediate:
        await way.publish_to_failing(body, queue, **options)
        return None
    number: int = await way.publish(body, queue, **options)
    return number


async def test_without_a_table_for_them_dead_letters_are_gone(way: Way, seen: Seen) -> None:
    broker = way.broker(dlq_table=None)

    @broker.subscriber("orders", retry_strategy=NoRetry())
    async def handle(body: int) -> None:
        seen(body)
        raise ValueError("broken")

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await seen.first()
        await way.empty()
    assert await way.rows(dead=True) == []


async def test_delay_of_a_nack_is_the_next_attempt(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", ack_policy=AckPolicy.MANUAL)
    async def handle(body: int, message: OutboxMessage) -> None:
        await message.nack(delay=500)

    async with way.running(broker):
        await way.publish(1, "orders")
        row = await way.attempted()
    assert timedelta(seconds=400) < row["next_attempt_at"] - datetime.now(UTC) < timedelta(seconds=600)
    assert row["first_attempt_at"] is not None


async def test_hook_hears_of_a_dead_letter_before_it_is_one(way: Way, seen: Seen) -> None:
    async def hook(claim: Any) -> None:
        seen(claim.queue, str(claim.error), len(await way.rows(dead=True)))

    broker = way.broker(on_terminal_failure=hook)

    @broker.subscriber("orders", retry_strategy=NoRetry())
    async def handle(body: int) -> None:
        raise ValueError("broken")

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.died()
    assert seen == [("orders", "broken", 0)]


async def test_renderer_of_errors_is_asked(way: Way) -> None:
    broker = way.broker(last_exception_renderer=lambda error: f"<{error}>")

    @broker.subscriber("orders", retry_strategy=NoRetry())
    async def handle(body: int) -> None:
        raise ValueError("broken")

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        assert (await way.died())["last_exception"] == "<broken>"


async def test_recorder_of_metrics_hears_what_happens(way: Way) -> None:
    heard: list[tuple[str, str]] = []
    broker = way.broker(metrics_recorder=lambda name, tags: heard.append((name, tags["queue"])))

    @broker.subscriber("good")
    async def handle(body: int) -> None: ...

    @broker.subscriber("again", retry_strategy=LATER)
    async def fail(body: int) -> None:
        raise ValueError

    @broker.subscriber("dead", retry_strategy=NoRetry())
    async def give_up(body: int) -> None:
        raise ValueError

    names = {
        "good": ["acked", "dispatched", "published"],
        "again": ["dispatched", "nacked_retried", "published"],
        "dead": ["dispatched", "dlq_written", "nacked_terminal", "published"],
    }
    wanted = sorted((name, queue) for queue, reported in names.items() for name in reported)

    def everything_was_heard() -> bool:
        return sorted(one for one in heard if one[0] != "fetched") == wanted

    async with way.running(broker):
        for queue in names:
            await way.publish_to_failing(1, queue)
        await way.eventually(everything_was_heard)


async def test_handler_that_takes_too_long_has_failed(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", handler_timeout=0.05, retry_strategy=LATER)
    async def handle(body: int) -> None:
        await asyncio.Event().wait()

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.attempted()


async def test_decision_before_the_time_is_over_stands(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", handler_timeout=0.05, ack_policy=AckPolicy.MANUAL)
    async def handle(body: int, message: OutboxMessage) -> None:
        await message.ack()
        await asyncio.Event().wait()

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.empty()


async def test_failing_batch_fails_each_message(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", batch=True, retry_strategy=NoRetry())
    async def handle(bodies: list[int]) -> None:
        raise ValueError("broken")

    async def both_are_dead() -> bool:
        return [row["payload"] for row in await way.rows(dead=True)] == [b"1", b"2"]

    async with way.running(broker):
        try:
            await way.publish_batch(1, 2, queue="orders")
        except ValueError:
            assert way.is_immediate
        await way.eventually(both_are_dead)


async def test_message_of_a_batch_has_an_ending_of_its_own(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", batch=True, ack_policy=AckPolicy.MANUAL, retry_strategy=LATER)
    async def handle(bodies: list[int], message: OutboxBatchMessage) -> None:
        for one, body in zip(message.messages, bodies, strict=True):
            await (one.ack() if body == 1 else one.nack() if body == 2 else one.reject())

    async with way.running(broker):
        await way.publish_batch(1, 2, 3, queue="orders")
        assert (await way.attempted())["payload"] == b"2"
        assert (await way.died())["payload"] == b"3"


async def test_failure_of_one_message_does_not_keep_the_others(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders", retry_strategy=LATER)
    async def handle(body: int) -> None:
        seen(body)
        if body == 1:
            raise ValueError("broken")

    async with way.running(broker):
        try:
            await way.publish_batch(1, 2, 3, queue="orders")
        except ValueError:
            assert way.is_immediate
        assert sorted(await seen.first(3)) == [1, 2, 3]
        await way.becomes("orders", b"1")

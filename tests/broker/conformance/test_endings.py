"""What becomes of a message: done, tried again or dead, and what is kept of it."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from faststream import AckPolicy

from faststream_outbox import ConstantRetry, NoRetry, OutboxBroker
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage
from tests.broker.conformance.differences import AGAIN, differs
from tests.broker.conformance.ways import Seen, Way, failing, noting
from tests.broker.endings import DONE, LEASE_SECONDS, STRATEGY_DELAY, TABLE, Ended, ending_in, failing_parser

LATER = ConstantRetry(delay_seconds=STRATEGY_DELAY)
SOON = ConstantRetry(delay_seconds=0.02, max_attempts=3)
ENDINGS = sorted({*TABLE} - {"panic", "on_receive raises", "NackMessage", "message.nack()", "StopConsume"})
pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


async def test_every_ending_under_every_policy(way: Way, broker: OutboxBroker) -> None:
    expected: dict[str, Ended] = {}
    for ending in ENDINGS:
        for policy, end in TABLE[ending].items():
            expected[f"{policy.name}: {ending}"] = end
            broker.subscriber(
                f"{policy.name}: {ending}",
                ack_policy=policy,
                retry_strategy=LATER,
                lease_ttl_seconds=LEASE_SECONDS,
                on_undecided="dead",
                parser=failing_parser if ending == "parser raises" else None,
            )(ending_in(ending))

    async def every_message_has_its_ending() -> bool:
        became = dict.fromkeys(expected, DONE)
        for row in await way.rows():
            if row["last_attempt_at"] and not row["acquired_token"]:
                ahead = row["next_attempt_at"] - datetime.now(UTC)
                became[row["queue"]] = Ended("waits", round(ahead.total_seconds(), -2), row["attempts_count"])
            else:
                became[row["queue"]] = Ended("in hand")
        for letter in await way.rows(dead=True):
            became[letter["queue"]] = Ended("undecided" if letter["failure_reason"] == "undecided" else "dead")
        return became == expected

    async with way.running(broker):
        for queue in expected:
            await way.publish_to_failing(1, queue)
        await way.eventually(every_message_has_its_ending)


@differs(AGAIN)
async def test_failed_message_comes_again(way: Way, broker: OutboxBroker, seen: Seen) -> None:
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
@pytest.mark.parametrize(
    ("options", "reason", "attempts"),
    [
        ({"retry_strategy": SOON}, "retry_terminal", 3),
        ({"retry_strategy": ConstantRetry(delay_seconds=0.02), "max_deliveries": 2}, "max_deliveries", 2),
    ],
    ids=["fails", "is delivered"],
)
async def test_message_that_does_so_too_often_is_dead(
    way: Way, broker: OutboxBroker, options: dict[str, Any], reason: str, attempts: int
) -> None:
    failing(broker, **options)
    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        letter = await way.died()
    assert (letter["failure_reason"], letter["attempts_count"]) == (reason, attempts)
    if reason == "retry_terminal":
        assert letter["deliveries_count"] == attempts


@differs(AGAIN)
async def test_snoozed_message_comes_again(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    @broker.subscriber("orders", ack_policy=AckPolicy.MANUAL)
    async def handle(body: int, message: OutboxMessage) -> None:
        seen(message.raw_message.attempts_count)
        await (message.snooze(0.02) if len(seen) < 3 else message.ack())

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first(3) == [0, 0, 0]
        await way.empty()


async def test_dead_letter_keeps_what_the_message_was(way: Way, broker: OutboxBroker) -> None:
    failing(broker, retry_strategy=NoRetry())
    options: dict[str, Any] = {
        "headers": {"tenant": "a"}, "key": "k", "priority": 3, "timer_id": "t", "correlation_id": "c",
    }  # fmt: skip
    async with way.running(broker):
        # Whoever publishes in memory is told of the failure in place of the id.
        number = await (way.publish_to_failing if way.is_immediate else way.publish)(1, "orders", **options)
        letter = await way.died()
        await way.empty()
    expected = {
        "queue": "orders", "payload": b"1", "key": "k", "priority": 3, "timer_id": "t", "attempts_count": 1,
        "headers": {"tenant": "a", "correlation_id": "c", "content-type": "application/json"},
        "failure_reason": "retry_terminal", "last_exception": "ValueError('broken')", "error_type": "ValueError",
        "error_message": "broken",
    }  # fmt: skip
    assert {name: letter[name] for name in expected} == expected
    assert 'raise ValueError("broken")' in letter["traceback"]
    assert number in (None, letter["original_id"])


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


async def test_hook_hears_of_a_dead_letter_before_it_is_one_and_the_renderer_is_asked(way: Way, seen: Seen) -> None:
    async def hook(claim: Any) -> None:
        seen(claim.queue, str(claim.error), len(await way.rows(dead=True)))

    broker = way.broker(on_terminal_failure=hook, last_exception_renderer=lambda error: f"<{error}>")
    failing(broker, retry_strategy=NoRetry())
    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        assert (await way.died())["last_exception"] == "<broken>"
    assert seen == [("orders", "broken", 0)]


async def test_recorder_of_metrics_hears_what_happens(way: Way, seen: Seen) -> None:
    heard: list[tuple[str, str]] = []
    broker = way.broker(metrics_recorder=lambda name, tags: heard.append((name, tags["queue"])))
    noting(broker, seen, "good")
    failing(broker, "again", retry_strategy=LATER)
    failing(broker, "dead", retry_strategy=NoRetry())
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


async def test_handler_that_takes_too_long_has_failed(way: Way, broker: OutboxBroker) -> None:
    @broker.subscriber("orders", handler_timeout=0.05, retry_strategy=LATER)
    async def handle(body: int) -> None:
        await asyncio.Event().wait()

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.attempted()


async def test_failing_batch_fails_each_message(way: Way, broker: OutboxBroker) -> None:
    failing(broker, batch=True, retry_strategy=NoRetry())

    async def both_are_dead() -> bool:
        return [row["payload"] for row in await way.rows(dead=True)] == [b"1", b"2"]

    async with way.running(broker):
        try:
            await way.publish_batch(1, 2, queue="orders")
        except ValueError:
            assert way.is_immediate
        await way.eventually(both_are_dead)


async def test_message_of_a_batch_has_an_ending_of_its_own(way: Way, broker: OutboxBroker) -> None:
    @broker.subscriber("orders", batch=True, ack_policy=AckPolicy.MANUAL, retry_strategy=LATER)
    async def handle(bodies: list[int], message: OutboxBatchMessage) -> None:
        for one, body in zip(message.messages, bodies, strict=True):
            await (one.ack() if body == 1 else one.nack() if body == 2 else one.reject())

    async with way.running(broker):
        await way.publish_batch(1, 2, 3, queue="orders")
        assert (await way.attempted())["payload"] == b"2"
        assert (await way.died())["payload"] == b"3"

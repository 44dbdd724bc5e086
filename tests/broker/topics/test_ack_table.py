"""What becomes of a topic's message: every way for a handler to end, under every policy."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage

from faststream_outbox import ConstantRetry
from faststream_outbox.annotations import OutboxMessage
from faststream_outbox.events.table import Died, Handled, Retried
from tests.broker.topics.stage import Stage

ACK, REJECT, NACK, MANUAL = AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL
STRATEGY_DELAY = 1000.0
LEASE_SECONDS = 300.0
pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")

HANDLED, RETRIED, PARKED = "handled", "retried", "parked"
ENDINGS: dict[str, type[Any]] = {HANDLED: Handled, RETRIED: Retried, PARKED: Died}

TABLE: dict[str, dict[AckPolicy, str]] = {
    "returns": {ACK: HANDLED, REJECT: HANDLED, NACK: HANDLED, MANUAL: RETRIED},
    "exception": {ACK: HANDLED, REJECT: PARKED, NACK: RETRIED, MANUAL: RETRIED},
    "AckMessage": {ACK: HANDLED, REJECT: HANDLED, NACK: HANDLED, MANUAL: RETRIED},
    "NackMessage": {ACK: RETRIED, REJECT: RETRIED, NACK: RETRIED, MANUAL: RETRIED},
    "RejectMessage": {ACK: PARKED, REJECT: PARKED, NACK: PARKED, MANUAL: RETRIED},
    "SkipMessage": dict.fromkeys((ACK, REJECT, NACK, MANUAL), RETRIED),
    "parser raises": {ACK: HANDLED, REJECT: PARKED, NACK: RETRIED, MANUAL: RETRIED},
    "on_receive raises": {ACK: HANDLED, REJECT: PARKED, NACK: RETRIED, MANUAL: RETRIED},
    "message.ack()": dict.fromkeys((ACK, REJECT, NACK, MANUAL), HANDLED),
    "message.nack()": dict.fromkeys((ACK, REJECT, NACK, MANUAL), RETRIED),
    "message.nack(500)": dict.fromkeys((ACK, REJECT, NACK, MANUAL), RETRIED),
    "message.snooze(500)": dict.fromkeys((ACK, REJECT, NACK, MANUAL), RETRIED),
    "message.reject()": dict.fromkeys((ACK, REJECT, NACK, MANUAL), PARKED),
    "acks, then raises": dict.fromkeys((ACK, REJECT, NACK, MANUAL), HANDLED),
    "rejects, then acks": dict.fromkeys((ACK, REJECT, NACK, MANUAL), PARKED),
    "cancelled": dict.fromkeys((ACK, REJECT, NACK, MANUAL), RETRIED),
}
RAISED: dict[str, type[BaseException]] = {
    "exception": ValueError,
    "AckMessage": AckMessage,
    "NackMessage": NackMessage,
    "RejectMessage": RejectMessage,
    "SkipMessage": SkipMessage,
    "cancelled": asyncio.CancelledError,
}
CASES = [(ending, policy, expected) for ending, row in TABLE.items() for policy, expected in row.items()]


def _handler(ending: str) -> Callable[..., Awaitable[None]]:
    async def handle(body: int, message: OutboxMessage) -> None:
        if body == 2:
            await message.ack()
            return
        match ending:
            case "message.ack()":
                await message.ack()
            case "message.nack()":
                await message.nack()
            case "message.nack(500)":
                await message.nack(delay=500)
            case "message.snooze(500)":
                await message.snooze(500)
            case "message.reject()":
                await message.reject()
            case "acks, then raises":
                await message.ack()
                raise ValueError
            case "rejects, then acks":
                await message.reject()
                await message.ack()
            case _:
                if ending in RAISED:
                    raise RAISED[ending]

    return handle


async def _failing_parser(raw: Any) -> Any:
    raise ValueError


class _FailingOnReceipt(BaseMiddleware):
    async def on_receive(self) -> None:
        raise ValueError


@pytest.mark.parametrize(("ending", "policy", "expected"), CASES, ids=[f"{e} {p.name}" for e, p, _ in CASES])
async def test_ending_of_a_handler_under_a_policy(stage: Stage, ending: str, policy: AckPolicy, expected: str) -> None:
    if ending == "on_receive raises":
        stage.broker.add_middleware(_FailingOnReceipt)
    subscriber = stage.broker.subscriber(
        topic="orders",
        group="billing",
        ack_policy=policy,
        retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY),
        lease_ttl_seconds=LEASE_SECONDS,
        parser=_failing_parser if ending == "parser raises" else None,
    )
    subscriber(_handler(ending))
    await stage.broker.start()
    first, second = await stage.publish(1, 2, key="order-1")
    event = await stage.witness.wait(ENDINGS[expected], id=first)
    assert event.queue == "orders"
    if expected == RETRIED:
        # Its key waits for it.
        waiting, behind = await stage.has_set_aside("retry", "deferred")
        assert (waiting.position, behind.position) == (first, second)
        assert waiting.due is not None
        ahead = (waiting.due - waiting.updated_at).total_seconds()
        is_skipped = ending == "SkipMessage" and policy is not MANUAL
        usual = LEASE_SECONDS if is_skipped else STRATEGY_DELAY
        assert ahead == pytest.approx(500 if "500" in ending else usual, abs=5)
        assert waiting.attempts == (0 if is_skipped or "snooze" in ending else 1)
    elif expected == PARKED:
        is_of_every_message = ending in ("parser raises", "on_receive raises")
        parked = await stage.has_set_aside(*["parked"] * (2 if is_of_every_message else 1))
        assert parked[0].position == first
    else:
        await stage.caught_up()


async def test_other_keys_go_on_while_one_waits(stage: Stage) -> None:
    @stage.broker.subscriber(
        topic="orders", group="billing", retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY)
    )
    async def handle(body: str) -> None:
        if body == "bad":
            raise ValueError
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish("bad", "behind", "x", "y", "z", keys=["1", "1", "2", "3", "2"])
    assert await stage.saw(3) == ["x", "y", "z"]
    await stage.has_set_aside("retry", "deferred")
    await stage.publish("later", key="3")
    assert await stage.saw(4) == ["x", "y", "z", "later"]


async def test_other_groups_do_not_wait_for_a_failure(stage: Stage) -> None:
    @stage.broker.subscriber(
        topic="orders", group="billing", retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY)
    )
    async def bill(body: int) -> None:
        raise ValueError

    @stage.broker.subscriber(topic="orders", group="mail")
    async def mail(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish(1, 2, key="order-1")
    assert await stage.saw(2) == [1, 2]
    await stage.has_set_aside("retry", "deferred")


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
    @stage.broker.subscriber(topic="orders", group="billing", ack_policy=REJECT)
    async def handle(body: int) -> None:
        raise ValueError("broken")

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    (parked,) = await stage.has_set_aside("parked")
    assert (parked.error_type, parked.error_message, parked.attempts) == ("ValueError", "broken", 1)
    assert parked.traceback is not None
    assert 'raise ValueError("broken")' in parked.traceback

"""What becomes of a message: every way for a handler to end, under every policy, in a queue and in a topic."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage, StopConsume
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage
from faststream_outbox.errors import InvalidOption
from tests.broker.endings import Ended, Endings, QueueEndings, TopicEndings
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

ACK, REJECT, NACK, MANUAL = AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL
pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


class Panic(BaseException):
    """What a Rust extension raises."""


STRATEGY_DELAY, LEASE_SECONDS = 1000.0, 300.0
DONE, RETRY, LATER, SNOOZED = "done", "retry", "later", "snoozed"
SKIPPED, DEAD, UNDECIDED = "skipped", "dead", "undecided"
ALIKE = {
    DONE: Ended("gone"),
    RETRY: Ended("waits", STRATEGY_DELAY, attempts=1),
    LATER: Ended("waits", 500, attempts=1),
    SNOOZED: Ended("waits", 500, attempts=0),
    SKIPPED: Ended("waits", LEASE_SECONDS, attempts=0),
    DEAD: Ended("dead"),
}
MEANING: dict[type[Endings], dict[str, Ended]] = {
    QueueEndings: {**ALIKE, UNDECIDED: Ended("undecided")},
    # Nobody else can say what becomes of it: its key would go on without it.
    TopicEndings: {**ALIKE, UNDECIDED: ALIKE[RETRY]},
}


def always(outcome: str) -> dict[AckPolicy, str]:
    return dict.fromkeys((ACK, REJECT, NACK, MANUAL), outcome)


TABLE: dict[str, dict[AckPolicy, str]] = {
    "returns": {ACK: DONE, REJECT: DONE, NACK: DONE, MANUAL: UNDECIDED},
    "exception": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "panic": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "AckMessage": {ACK: DONE, REJECT: DONE, NACK: DONE, MANUAL: UNDECIDED},
    "NackMessage": {ACK: RETRY, REJECT: RETRY, NACK: RETRY, MANUAL: UNDECIDED},
    "NackMessage(500)": {ACK: LATER, REJECT: LATER, NACK: LATER, MANUAL: UNDECIDED},
    "RejectMessage": {ACK: DEAD, REJECT: DEAD, NACK: DEAD, MANUAL: UNDECIDED},
    "SkipMessage": {ACK: SKIPPED, REJECT: SKIPPED, NACK: SKIPPED, MANUAL: UNDECIDED},
    "StopConsume": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "parser raises": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "on_receive raises": {ACK: DONE, REJECT: DEAD, NACK: RETRY, MANUAL: UNDECIDED},
    "message.ack()": always(DONE),
    "message.nack()": always(RETRY),
    "message.nack(500)": always(LATER),
    "message.snooze(500)": always(SNOOZED),
    "message.reject()": always(DEAD),
    "acks, then raises": always(DONE),
    "rejects, then acks": always(DEAD),
    "cancelled": always(RETRY),
}
RAISED: dict[str, BaseException] = {
    "exception": ValueError(),
    "panic": Panic(),
    "AckMessage": AckMessage(),
    "NackMessage": NackMessage(),
    "NackMessage(500)": NackMessage(delay=500),
    "RejectMessage": RejectMessage(),
    "SkipMessage": SkipMessage(),
    "StopConsume": StopConsume(),
    "cancelled": asyncio.CancelledError(),
}


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
            case _ if ending in RAISED:
                raise RAISED[ending]

    return handle


async def _failing_parser(raw: Any) -> Any:
    raise ValueError


class _FailingOnReceipt(BaseMiddleware):
    async def on_receive(self) -> None:
        raise ValueError


@pytest.fixture(params=[QueueEndings, TopicEndings], ids=["queue", "topic"])
def endings(request: pytest.FixtureRequest, stage: Stage) -> Endings:
    made: Endings = request.param(stage)
    return made


@pytest.mark.parametrize("ending", TABLE)
async def test_ending_of_a_handler_under_every_policy(endings: Endings, ending: str) -> None:
    broker = endings.stage.broker
    if ending == "on_receive raises":
        broker.add_middleware(_FailingOnReceipt)
    for policy in TABLE[ending]:
        endings.subscriber(
            policy.name,
            ack_policy=policy,
            retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY),
            lease_ttl_seconds=LEASE_SECONDS,
            parser=_failing_parser if ending == "parser raises" else None,
        )(_handler(ending))
    await broker.start()
    # Who stops consuming does not read what is behind.
    alone = ending == "StopConsume"
    numbers = {policy: await endings.publish(policy.name, alone=alone) for policy in TABLE[ending]}
    became = {policy: await endings.of(policy.name, number) for policy, number in numbers.items()}
    assert became == {policy: MEANING[type(endings)][outcome] for policy, outcome in TABLE[ending].items()}
    if ending in RAISED and TABLE[ending][MANUAL] == UNDECIDED:
        assert str(became[MANUAL].error).endswith(type(RAISED[ending]).__name__)


async def test_ack_first_is_refused_and_says_why(endings: Endings) -> None:
    with pytest.raises(InvalidOption, match="crash loses it"):
        endings.subscriber("orders", ack_policy=AckPolicy.ACK_FIRST)


async def played(stage: Stage, *bodies: Any) -> tuple[list[Any], list[Any]]:
    """Publish to the queue `orders`, and give both tables once all is settled."""
    await stage.broker.start()
    async with AsyncSession(stage.engine) as session, session.begin():
        await stage.broker.publish_batch(*(bodies or (1,)), queue="orders", session=session)

    async def every_message_was_settled() -> bool:
        rows = await stage.sql(f"select * from {stage.table.name}")
        return all(row["last_attempt_at"] is not None and row["acquired_token"] is None for row in rows)

    await eventually(every_message_was_settled)
    return (
        await stage.sql(f"select * from {stage.table.name}"),
        await stage.sql(f"select * from {stage.dlq_table.name}"),
    )


@pytest.mark.parametrize(("choice", "rows", "letters"), [("retry", 1, 0), ("done", 0, 0), ("dead", 0, 1)])
async def test_undecided_message_follows_the_subscribers_choice(
    stage: Stage, choice: Any, rows: int, letters: int
) -> None:
    @stage.broker.subscriber(
        "orders", ack_policy=MANUAL, on_undecided=choice, retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY)
    )
    async def handle(body: int) -> None: ...

    left, dead = await played(stage)
    assert (len(left), len(dead)) == (rows, letters)


async def test_undecided_message_may_be_released_at_once(stage: Stage) -> None:
    twice = asyncio.Event()
    deliveries: list[int] = []

    @stage.broker.subscriber(
        "orders", ack_policy=MANUAL, on_undecided="release", max_fetch_interval=0.1, min_fetch_interval=0.1
    )
    async def handle(body: int, message: OutboxMessage) -> None:
        deliveries.append(message.raw_message.deliveries_count)
        if len(deliveries) == 2:
            await message.ack()
            twice.set()

    await stage.broker.start()
    async with AsyncSession(stage.engine) as session, session.begin():
        await stage.broker.publish(1, "orders", session=session)
    async with asyncio.timeout(30):
        await twice.wait()
    assert deliveries == [1, 2]


async def test_error_is_kept_with_the_dead_letter(stage: Stage) -> None:
    @stage.broker.subscriber("orders", ack_policy=REJECT)
    async def handle(body: int) -> None:
        raise ValueError("broken")

    _, (letter,) = await played(stage)
    assert (letter["failure_reason"], letter["error_type"], letter["error_message"]) == (
        "rejected",
        "ValueError",
        "broken",
    )


async def test_policy_holds_for_a_whole_batch(stage: Stage) -> None:
    @stage.broker.subscriber("orders", ack_policy=REJECT, batch=True)
    async def handle(bodies: list[int]) -> None:
        raise ValueError

    rows, letters = await played(stage, 1, 2, 3)
    assert (len(rows), len(letters)) == (0, 3)


async def test_messages_of_a_batch_may_be_decided_one_by_one(stage: Stage) -> None:
    @stage.broker.subscriber("orders", batch=True, retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY))
    async def handle(bodies: list[str], batch: OutboxBatchMessage) -> None:
        for message in batch.messages:
            match message.body:
                case b"reject":
                    await message.reject()
                case b"nack":
                    await message.nack()

    rows, letters = await played(stage, "fine", "reject", "nack")
    assert ([row["payload"] for row in rows], [letter["payload"] for letter in letters]) == ([b"nack"], [b"reject"])


async def test_without_a_table_for_dead_letters_a_reject_deletes(stage: Stage) -> None:
    stage.replace(dlq_table=None)

    @stage.broker.subscriber("orders")
    async def handle(body: int) -> None:
        raise RejectMessage

    assert await played(stage) == ([], [])

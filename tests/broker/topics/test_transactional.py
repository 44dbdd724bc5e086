"""Transactional handlers of topics: effects, published messages and the cursor commit together, or not at all."""

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import AckMessage, NackMessage, RejectMessage
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, NoRetry, OutboxResponse
from faststream_outbox._internal.log.settler import Settler
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage, OutboxSession
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

LATER = ConstantRetry(delay_seconds=1000)
SOON = ConstantRetry(delay_seconds=0.02)


async def reached(stage: Stage) -> int:
    """How far the group has come, as is committed."""
    rows = await stage.sql(f"select min(position) as reached from {stage.log_tables.offsets.name}")
    return int(rows[0]["reached"] or 0)


async def test_effects_messages_and_the_cursor_commit_together(stage: Stage) -> None:
    @stage.broker.publisher(topic="returned")
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int, session: OutboxSession, outbox: BrokerOfHandler) -> int:
        await stage.write(session, body)
        await outbox.publish(body + 1, "mails")
        await outbox.publish(body + 2, topic="bills", key="bill-1")
        stage.seen.append((await reached(stage), await stage.effect_numbers(), await stage.in_log("bills")))
        return body + 3

    await stage.broker.start()
    (position,) = await stage.publish(1, key="order-1")
    await stage.caught_up()
    assert stage.seen == [(0, [], [])]
    assert await reached(stage) >= position
    assert await stage.effect_numbers() == [1]
    assert await stage.in_queue("mails") == [b"2"]
    assert [row["body"] for row in await stage.in_log("bills")] == [b"3"]
    assert [row["body"] for row in await stage.in_log("returned")] == [b"4"]


async def test_cursor_moves_in_the_transaction_of_the_handler(stage: Stage) -> None:
    """Each message sees the cursor behind the one before it, although the batch is not over."""

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int) -> None:
        stage.seen.append(await reached(stage))

    positions = await stage.publish(1, 2, 3, key="order-1")
    await stage.broker.start()
    await stage.caught_up()
    assert stage.seen == [0, *positions[:2]]


async def test_exception_leaves_nothing_and_the_message_comes_again(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=SOON)
    async def handle(body: int, session: OutboxSession, outbox: BrokerOfHandler) -> None:
        stage.seen.append(body)
        await stage.write(session, body)
        await outbox.publish(len(stage.seen), topic="bills")
        if len(stage.seen) == 1:
            raise ValueError

    await stage.broker.start()
    await stage.publish(1, 2, key="order-1")
    await stage.caught_up()
    assert stage.seen == [1, 1, 2]
    assert await stage.effect_numbers() == [1, 2]
    assert [row["body"] for row in await stage.in_log("bills")] == [b"2", b"3"]


@pytest.mark.parametrize("raised", [ValueError, NackMessage, asyncio.CancelledError])
async def test_ending_that_is_no_success_rolls_back(stage: Stage, raised: type[BaseException]) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession, outbox: BrokerOfHandler) -> None:
        await stage.write(session, body)
        await outbox.publish(body, topic="bills")
        raise raised

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.has_deferred("retry")
    assert (await stage.effect_numbers(), await stage.in_log("bills")) == ([], [])


async def test_rejected_message_is_parked_and_its_effects_are_gone(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int, session: OutboxSession) -> None:
        await stage.write(session, body)
        raise RejectMessage

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.has_deferred("parked")
    assert await stage.effect_numbers() == []


async def test_raised_ack_commits(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int, session: OutboxSession) -> None:
        await stage.write(session, body)
        raise AckMessage

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.caught_up()
    assert await stage.effect_numbers() == [1]


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL], ids=str)
@pytest.mark.parametrize("is_acked", [True, False])
async def test_decision_by_hand_is_the_end_of_the_transaction(stage: Stage, policy: AckPolicy, is_acked: bool) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, ack_policy=policy)
    async def handle(body: int, session: OutboxSession, message: OutboxMessage) -> None:
        await stage.write(session, body)
        await (message.ack() if is_acked else message.nack(delay=1000))

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    if is_acked:
        await stage.caught_up()
    else:
        await stage.has_deferred("retry")
    assert await stage.effect_numbers() == ([1] if is_acked else [])


async def test_undecided_under_manual_rolls_back(stage: Stage) -> None:
    @stage.broker.subscriber(
        topic="orders", group="billing", transactional=True, ack_policy=AckPolicy.MANUAL, retry_strategy=LATER
    )
    async def handle(body: int, session: OutboxSession) -> None:
        await stage.write(session, body)

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.has_deferred("retry")
    assert await stage.effect_numbers() == []


@pytest.mark.parametrize("failing_attempts", [1, 2])
async def test_commit_that_fails_is_tried_again_until_it_succeeds(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, failing_attempts: int
) -> None:
    """Also at the second attempt, when the message comes from those deferred."""

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=SOON)
    async def handle(body: int, session: OutboxSession) -> None:
        stage.seen.append(body)
        await stage.write(session, body)
        if len(stage.seen) <= failing_attempts:

            async def broken() -> None:
                raise ValueError("no commit")

            monkeypatch.setattr(session, "commit", broken)

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.saw(failing_attempts + 1)
    await stage.caught_up()
    assert stage.seen == [1] * (failing_attempts + 1)
    assert await stage.effect_numbers() == [1]


async def test_constraint_that_fails_at_commit_parks_the_message(stage: Stage) -> None:
    await stage.sql("alter table effects add constraint later unique (number) deferrable initially deferred")
    await stage.sql("alter table effects drop constraint effects_pkey")

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=NoRetry())
    async def handle(body: int, session: OutboxSession) -> None:
        await stage.write(session, body)
        if body == 1:
            await stage.write(session, body)

    await stage.broker.start()
    await stage.publish(1, 2, key="order-1")
    (parked,) = await stage.has_deferred("parked")
    await stage.wrote(2)
    assert "later" in (parked.error_message or "")


async def test_lost_lease_rolls_back(stage: Stage) -> None:
    """Who has lost its slots commits nothing, and whoever took them does it once."""

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=SOON)
    async def handle(body: int, session: OutboxSession) -> None:
        stage.seen.append(body)
        await stage.write(session, body)
        if len(stage.seen) == 1:
            await stage.sql(f"update {stage.log_tables.offsets.name} set owner = null, until = null, epoch = epoch + 1")

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.saw(2)
    await stage.caught_up()
    assert stage.seen == [1, 1]
    assert await stage.effect_numbers() == [1]


async def test_fence_that_fails_leaves_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> None:
        raise ValueError("no fence")

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession) -> None:
        await stage.write(session, body)

    monkeypatch.setattr(Settler, "settle_within", broken)
    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.has_deferred("retry")
    assert await stage.effect_numbers() == []


async def test_failures_before_a_success_are_kept(stage: Stage) -> None:
    """What failed in the same batch is deferred in the transaction of the one that follows."""

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession) -> None:
        await stage.write(session, body)
        if body < 0:
            raise ValueError

    await stage.publish(-1, 2, -3, 4, keys=["a", "b", "c", "a"])
    await stage.broker.start()
    found = await stage.has_deferred("retry", "retry", "deferred")
    assert [each.key for each in found] == ["orders/a", "orders/c", "orders/a"]
    assert await stage.effect_numbers() == [2]


async def test_members_of_a_group_have_every_effect_once(stage: Stage) -> None:
    second = stage.another()

    async def handle(body: int, session: OutboxSession) -> None:
        # A number that is written twice violates the primary key, and would be parked.
        await stage.write(session, body)

    for broker in (stage.broker, second):
        broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=NoRetry())(handle)
    await stage.broker.start()
    await stage.publish(*range(100), keys=[str(number % 16) for number in range(100)])
    await second.start()
    await stage.publish(*range(100, 200), keys=[str(number % 16) for number in range(100)])
    await stage.caught_up()
    assert await stage.effect_numbers() == [*range(200)]


async def test_session_of_its_own_is_not_part_of_it(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=LATER)
    async def handle(body: int) -> None:
        async with AsyncSession(stage.engine) as own, own.begin():
            await stage.broker.publish(body, topic="bills", session=own)
        raise ValueError

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.has_deferred("retry")
    assert [row["body"] for row in await stage.in_log("bills")] == [b"1"]


async def test_key_waits_for_a_message_whose_commit_failed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession) -> None:
        stage.seen.append(body)
        await stage.write(session, body)
        if body == 1:

            async def broken() -> None:
                raise ValueError("no commit")

            monkeypatch.setattr(session, "commit", broken)

    await stage.publish(1, 2, 3, keys=["a", "a", "b"])
    await stage.broker.start()
    await stage.has_deferred("retry", "deferred")
    await stage.wrote(3)
    assert stage.seen == [1, 3]


async def test_handler_that_is_cancelled_by_a_stop_leaves_nothing_and_no_attempt(stage: Stage) -> None:
    broker = stage.replace(graceful_timeout=0.1)
    begun, may_end = asyncio.Event(), asyncio.Event()

    @broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int, session: OutboxSession, message: OutboxMessage) -> None:
        await stage.write(session, body)
        stage.seen.append(message.raw_message.deliveries_count)
        begun.set()
        await may_end.wait()

    await broker.start()
    await stage.publish(1, key="order-1")
    await begun.wait()
    await broker.stop()
    assert (await stage.effect_numbers(), await stage.deferred()) == ([], [])
    may_end.set()
    await broker.start()
    await stage.caught_up()
    assert stage.seen == [1, 1]
    assert await stage.effect_numbers() == [1]


async def test_answer_and_response_are_part_of_the_transaction(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=SOON)
    async def handle(body: int, session: OutboxSession) -> OutboxResponse:
        stage.seen.append(body)
        await session.execute(text("select 1 / :number"), {"number": len(stage.seen) - 1})
        return OutboxResponse(body + 1, topic="bills", key="bill-1")

    @stage.broker.subscriber(topic="requests", group="billing", transactional=True, retry_strategy=SOON)
    async def answer(body: int) -> int:
        return body + 1

    await stage.broker.start()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="orders", session=connection)
        await stage.broker.publish(10, topic="requests", reply_to="answers", session=connection)
    await stage.caught_up()
    await stage.caught_up("billing", "requests")
    assert stage.seen == [1, 1]
    assert [row["body"] for row in await stage.in_log("bills")] == [b"2"]
    assert await stage.in_queue("answers") == [b"11"]


async def test_message_that_was_acknowledged_before_an_error_comes_again(stage: Stage) -> None:
    """Its effects were rolled back with everything else: it is not done."""

    @stage.broker.subscriber(topic="orders", group="billing", transactional=True, retry_strategy=SOON)
    async def handle(body: int, session: OutboxSession, message: OutboxMessage) -> None:
        await stage.write(session, body)
        await message.ack()
        stage.seen.append(body)
        if len(stage.seen) == 1:
            raise ValueError(body)

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.caught_up()
    assert (stage.seen, await stage.effect_numbers()) == ([1, 1], [1])


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL], ids=str)
async def test_batch_that_was_acknowledged_before_an_error_comes_again(stage: Stage, policy: AckPolicy) -> None:
    subscriber = stage.broker.subscriber(
        topic="orders", group="billing", transactional=True, batch=True, ack_policy=policy, retry_strategy=SOON
    )

    @subscriber
    async def handle(bodies: list[int], session: OutboxSession, message: OutboxBatchMessage) -> None:
        for body in bodies:
            await stage.write(session, body)
        await message.ack()
        stage.seen.append(bodies)
        if len(stage.seen) == 1:
            raise ValueError(bodies)

    await stage.publish(1, 2, key="order-1")
    await stage.broker.start()
    await eventually(lambda: len(stage.seen) > 1)
    await stage.caught_up()
    assert (stage.seen[0], await stage.effect_numbers()) == ([1, 2], [1, 2])

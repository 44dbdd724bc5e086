"""Transactional handlers: writes, published messages and the end of the message commit together, or not at all."""

import asyncio
from typing import Annotated, Any

import pytest
from faststream import AckPolicy, Response
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, NoRetry
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox.annotations import Context, OutboxMessage, OutboxSession
from faststream_outbox.annotations import OutboxBroker as Broker
from faststream_outbox.errors import LeaseLost
from tests.broker.effects import EffectsShop
from tests.waiting import eventually

LATER = ConstantRetry(delay_seconds=1000)
SOON = ConstantRetry(delay_seconds=0.01)


async def test_writes_messages_and_the_end_commit_together(shop: EffectsShop) -> None:
    @shop.broker.publisher("returned")
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> int:
        await shop.write(session, body)
        await outbox.publish(body + 1, "published")
        assert await shop.state() == {"effects": [], "messages": {"orders": [b"1"]}, "dead": 0}
        return body + 2

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(effects=[1], messages={"published": [b"2"], "returned": [b"3"]})


async def test_publisher_object_needs_no_session_in_a_transactional_handler(shop: EffectsShop) -> None:
    publisher = shop.broker.publisher("published")

    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int) -> None:
        await publisher.publish(body)
        await shop.broker.publish_batch(2, 3, queue="published")

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(messages={"published": [b"1", b"2", b"3"]})


async def test_answer_to_reply_to_is_in_the_transaction(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> int:
        await shop.write(session, body)
        return body

    await shop.broker.start()
    async with AsyncSession(shop.engine) as session, session.begin():
        await shop.broker.publish(1, "orders", session=session, reply_to="answers")
    await shop.becomes(effects=[1], messages={"answers": [b"1"]})


async def test_exception_leaves_nothing_and_the_message_comes_again(shop: EffectsShop) -> None:
    attempts: list[int] = []

    @shop.broker.subscriber("orders", transactional=True, retry_strategy=SOON)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        attempts.append(body)
        await shop.write(session, body)
        await outbox.publish(len(attempts), "published")
        if len(attempts) == 1:
            raise ValueError

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(effects=[1], messages={"published": [b"2"]})
    assert attempts == [1, 1]


@pytest.mark.parametrize("raised", [NackMessage, ValueError, asyncio.CancelledError])
async def test_ending_that_is_no_success_rolls_back(shop: EffectsShop, raised: type[BaseException]) -> None:
    @shop.broker.subscriber("orders", transactional=True, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        await shop.write(session, body)
        await outbox.publish(body, "published")
        raise raised

    await shop.broker.start()
    await shop.publish(1)
    await shop.failed()


async def test_skipped_message_leaves_nothing_and_no_attempt(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        await shop.write(session, body)
        await outbox.publish(body, "published")
        raise SkipMessage

    await shop.broker.start()
    await shop.publish(1)

    async def the_order_waits() -> Any:
        return await shop.sql(
            f"select 1 from {shop.outbox.name} where next_attempt_at > now() and attempts_count = deliveries_count"
        )

    await eventually(the_order_waits)
    assert await shop.state() == {"effects": [], "messages": {"orders": [b"1"]}, "dead": 0}


async def test_rejected_message_is_a_dead_letter_and_its_writes_are_gone(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> None:
        await shop.write(session, body)
        raise RejectMessage

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(dead=1)


async def test_raised_ack_commits(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> None:
        await shop.write(session, body)
        raise AckMessage

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(effects=[1])


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL])
async def test_acked_by_hand_commits(shop: EffectsShop, policy: AckPolicy) -> None:
    @shop.broker.subscriber("orders", transactional=True, ack_policy=policy)
    async def handle(body: int, session: OutboxSession, message: OutboxMessage) -> None:
        await shop.write(session, body)
        await message.ack()

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(effects=[1])


@pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")
@pytest.mark.parametrize("batch", [False, True])
async def test_acked_by_hand_before_an_error_is_a_failed_attempt(shop: EffectsShop, batch: bool) -> None:
    async def handle(session: OutboxSession, message: Annotated[Any, Context()]) -> None:
        await shop.write(session, 1)
        await message.ack()
        raise ValueError

    policies = (AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL, AckPolicy.REJECT_ON_ERROR, AckPolicy.ACK)
    for policy in policies:
        shop.broker.subscriber(policy.name, transactional=True, ack_policy=policy, batch=batch, retry_strategy=LATER)(
            handle
        )
    await shop.broker.start()
    for policy in policies:
        await shop.publish(1, queue=policy.name)

    async def every_order_was_settled() -> bool:
        rows = await shop.sql(f"select attempts_count, acquired_token from {shop.outbox.name}")
        return [tuple(row.values()) for row in rows] == [(1, None)] * 3

    await eventually(every_order_was_settled)
    # Under ACK an error is forgotten, and the message with it.
    kept = {policy.name: [b"1"] for policy in policies[:-1]}
    assert await shop.state() == {"effects": [], "messages": kept, "dead": 0}


@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL])
async def test_nacked_by_hand_rolls_back(shop: EffectsShop, policy: AckPolicy) -> None:
    @shop.broker.subscriber("orders", transactional=True, ack_policy=policy)
    async def handle(body: int, session: OutboxSession, message: OutboxMessage) -> None:
        await shop.write(session, body)
        await message.nack(delay=1000)

    await shop.broker.start()
    await shop.publish(1)
    await shop.failed()


async def test_undecided_under_manual_rolls_back(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True, ack_policy=AckPolicy.MANUAL, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession) -> None:
        await shop.write(session, body)

    await shop.broker.start()
    await shop.publish(1)
    await shop.failed()


async def test_failing_publisher_rolls_back(shop: EffectsShop) -> None:
    @shop.broker.publisher("returned")
    @shop.broker.subscriber("orders", transactional=True, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession) -> Any:
        await shop.write(session, body)
        return Response(body, headers={"bad": object()})

    await shop.broker.start()
    await shop.publish(1)
    await shop.failed()


@pytest.mark.parametrize("step", ["settle_within", "commit"])
async def test_failure_at_a_step_of_the_end_leaves_nothing(
    shop: EffectsShop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise ConnectionError

    @shop.broker.subscriber("orders", transactional=True, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        await shop.write(session, body)
        await outbox.publish(body, "published")
        if step == "commit":
            monkeypatch.setattr(session, "commit", broken)

    if step == "settle_within":
        monkeypatch.setattr(OutboxClient, "settle_within", broken)
    await shop.broker.start()
    await shop.publish(1)
    await shop.failed()


async def test_failure_of_the_end_is_tried_again_until_it_succeeds(
    shop: EffectsShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []

    @shop.broker.subscriber("orders", transactional=True, retry_strategy=SOON)
    async def handle(body: int, session: OutboxSession) -> None:
        await shop.write(session, body)
        commits.append(body)
        if len(commits) == 1:

            async def broken() -> None:
                raise ConnectionError

            monkeypatch.setattr(session, "commit", broken)

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(effects=[1])
    assert commits == [1, 1]


async def test_deferred_constraint_that_fails_at_commit_leaves_nothing(shop: EffectsShop) -> None:
    await shop.sql(
        f"alter table {shop.effects.name} add constraint later unique (number) deferrable initially deferred"
    )
    await shop.sql(f"alter table {shop.effects.name} drop constraint effects_pkey")

    @shop.broker.subscriber("orders", transactional=True, retry_strategy=NoRetry())
    async def handle(body: int, session: OutboxSession) -> None:
        await shop.write(session, body)
        await shop.write(session, body)

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(dead=1)


async def test_lost_lease_rolls_back(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        await shop.write(session, body)
        await outbox.publish(body, "published")
        # As another worker would, after it found the lease run out.
        await shop.sql(
            f"update {shop.outbox.name} set acquired_token = gen_random_uuid(), acquired_at = now() + '1 hour'"
        )

    ended = asyncio.Event()
    settle = shop.broker.client.settle_within

    async def watched(*args: Any) -> None:
        try:
            await settle(*args)
        except LeaseLost:
            ended.set()
            raise

    shop.broker.client.settle_within = watched  # type: ignore[method-assign]
    await shop.broker.start()
    await shop.publish(1)
    async with asyncio.timeout(30):
        await ended.wait()
    await shop.broker.stop()
    assert await shop.state() == {"effects": [], "messages": {"orders": [b"1"]}, "dead": 0}


async def test_batch_commits_as_one(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True, batch=True, batch_size=3, batch_wait=1.0)
    async def handle(bodies: list[int], session: OutboxSession, outbox: Broker) -> None:
        for body in bodies:
            await shop.write(session, body)
        await outbox.publish(len(bodies), "published")

    await shop.broker.start()
    await shop.publish(1, 2, 3)
    await shop.becomes(effects=[1, 2, 3], messages={"published": [b"3"]})


async def test_batch_that_fails_leaves_nothing(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True, batch=True, retry_strategy=NoRetry())
    async def handle(bodies: list[int], session: OutboxSession) -> None:
        for body in bodies:
            await shop.write(session, body)
        raise ValueError

    await shop.broker.start()
    await shop.publish(1, 2, 3)
    await shop.becomes(dead=3)


async def test_session_is_closed_after_the_handler(shop: EffectsShop) -> None:
    sessions: list[AsyncSession] = []

    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> None:
        sessions.append(session)
        await shop.write(session, body)

    await shop.broker.start()
    await shop.publish(1)
    await shop.becomes(effects=[1])
    await eventually(lambda: not sessions[0].in_transaction())


async def test_concurrent_handlers_have_sessions_of_their_own(shop: EffectsShop) -> None:
    together = asyncio.Barrier(2)
    sessions: set[int] = set()

    @shop.broker.subscriber("orders", transactional=True, max_workers=2)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        await shop.write(session, body)
        async with asyncio.timeout(30):
            await together.wait()
        sessions.add(id(session))
        await outbox.publish(body, "published")

    await shop.broker.start()
    await shop.publish(1, 2)
    await eventually(lambda: len(sessions) == 2)

    async def both_were_published() -> bool:
        state = await shop.state()
        return sorted(state["messages"].get("published", [])) == [b"1", b"2"] and state["effects"] == [1, 2]

    await eventually(both_were_published)

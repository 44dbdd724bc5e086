"""Transactional handlers: writes, published messages and the end of the message commit together, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faststream import AckPolicy, Response
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, NoRetry
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox.annotations import OutboxBroker as Broker
from faststream_outbox.annotations import OutboxMessage, OutboxSession
from faststream_outbox.errors import LeaseLost
from tests.broker.effects import EffectsShop
from tests.waiting import eventually

LATER = ConstantRetry(delay_seconds=1000)
SOON = ConstantRetry(delay_seconds=0.01)
NACK, MANUAL = AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL
NOTHING: dict[str, Any] = {"effects": [], "messages": {"orders": [b"1"]}, "dead": 0}


async def test_writes_messages_and_the_end_commit_together(shop: EffectsShop) -> None:
    publisher = shop.broker.publisher("of an object")

    @shop.broker.publisher("returned")
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> int:
        await shop.write(session, body)
        await outbox.publish(body + 1, "published")
        await outbox.publish_batch(3, 4, queue="published")
        await publisher.publish(body)
        assert await shop.state() == NOTHING
        return body + 2

    await shop.broker.start()
    async with AsyncSession(shop.engine) as session, session.begin():
        await shop.broker.publish(1, "orders", session=session, reply_to="answers")
    published = {"published": [b"2", b"3", b"4"], "of an object": [b"1"], "returned": [b"3"], "answers": [b"3"]}
    await shop.becomes(effects=[1], messages=published)


async def test_exception_leaves_nothing_and_the_message_comes_again(shop: EffectsShop) -> None:
    attempts: list[int] = []

    @shop.broker.subscriber("orders", transactional=True, retry_strategy=SOON)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        attempts.append(body)
        await shop.write(session, body)
        await outbox.publish(len(attempts), "published")
        if len(attempts) == 1:
            raise ValueError

    await shop.deliver(1)
    await shop.becomes(effects=[1], messages={"published": [b"2"]})
    assert attempts == [1, 1]


def raises(error: type[BaseException]) -> Callable[[Any], Awaitable[None]]:
    async def end(message: Any) -> None:
        raise error

    return end


async def returns(message: Any) -> None: ...


async def acks_and_raises(message: Any) -> None:
    await message.ack()
    raise ValueError


COMMITTED: dict[str, Any] = {"effects": [1], "messages": {"published": [b"1"]}}
FAILED = None


@pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")
@pytest.mark.parametrize(
    ("ends", "policy", "becomes"),
    [
        pytest.param(raises(NackMessage), NACK, FAILED, id="raises NackMessage"),
        pytest.param(raises(ValueError), NACK, FAILED, id="raises an error"),
        pytest.param(raises(asyncio.CancelledError), NACK, FAILED, id="cancels itself"),
        pytest.param(raises(RejectMessage), NACK, {"dead": 1}, id="raises RejectMessage"),
        pytest.param(raises(AckMessage), NACK, COMMITTED, id="raises AckMessage"),
        pytest.param(lambda message: message.ack(), NACK, COMMITTED, id="acks"),
        pytest.param(lambda message: message.ack(), MANUAL, COMMITTED, id="acks under MANUAL"),
        pytest.param(lambda message: message.nack(delay=1000), NACK, FAILED, id="nacks"),
        pytest.param(lambda message: message.nack(delay=1000), MANUAL, FAILED, id="nacks under MANUAL"),
        pytest.param(returns, MANUAL, FAILED, id="decides nothing under MANUAL"),
        pytest.param(acks_and_raises, NACK, FAILED, id="acks and raises"),
        pytest.param(acks_and_raises, MANUAL, FAILED, id="acks and raises under MANUAL"),
        # An error is forgotten there, and the message with it.
        pytest.param(acks_and_raises, AckPolicy.ACK, {}, id="acks and raises under ACK"),
    ],
)
async def test_what_a_handler_did_is_there_if_it_succeeded_and_gone_if_not(
    shop: EffectsShop, ends: Any, policy: AckPolicy, becomes: dict[str, Any] | None
) -> None:
    @shop.broker.subscriber("orders", transactional=True, ack_policy=policy, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession, outbox: Broker, message: OutboxMessage) -> None:
        await shop.write(session, body)
        await outbox.publish(body, "published")
        await ends(message)

    await shop.deliver(1)
    await (shop.failed() if becomes is None else shop.becomes(**becomes))


async def test_skipped_message_leaves_nothing_and_no_attempt(shop: EffectsShop) -> None:
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        await shop.write(session, body)
        await outbox.publish(body, "published")
        raise SkipMessage

    await shop.deliver(1)

    async def the_order_waits() -> Any:
        return await shop.sql(
            f"select 1 from {shop.outbox.name} where next_attempt_at > now() and attempts_count = deliveries_count"
        )

    await eventually(the_order_waits)
    assert await shop.state() == NOTHING


async def test_failing_publisher_rolls_back(shop: EffectsShop) -> None:
    @shop.broker.publisher("returned")
    @shop.broker.subscriber("orders", transactional=True, retry_strategy=LATER)
    async def handle(body: int, session: OutboxSession) -> Any:
        await shop.write(session, body)
        return Response(body, headers={"bad": object()})

    await shop.deliver(1)
    await shop.failed()


@pytest.mark.parametrize("step", ["settle_within", "commit"])
async def test_failure_at_a_step_of_the_end_leaves_nothing_and_is_tried_again(
    shop: EffectsShop, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    attempts: list[int] = []

    async def broken(*_: Any, **__: Any) -> None:
        monkeypatch.undo()
        raise ConnectionError

    @shop.broker.subscriber("orders", transactional=True, retry_strategy=SOON)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        attempts.append(body)
        await shop.write(session, body)
        await outbox.publish(len(attempts), "published")
        if len(attempts) == 1:
            monkeypatch.setattr(session if step == "commit" else OutboxClient, step, broken)

    await shop.deliver(1)
    await shop.becomes(effects=[1], messages={"published": [b"2"]})
    assert attempts == [1, 1]


async def test_deferred_constraint_that_fails_at_commit_leaves_nothing(shop: EffectsShop) -> None:
    await shop.sql(
        f"alter table {shop.effects.name} add constraint later unique (number) deferrable initially deferred"
    )
    await shop.sql(f"alter table {shop.effects.name} drop constraint effects_pkey")

    @shop.broker.subscriber("orders", transactional=True, retry_strategy=NoRetry())
    async def handle(body: int, session: OutboxSession) -> None:
        await shop.write(session, body)
        await shop.write(session, body)

    await shop.deliver(1)
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
    await shop.deliver(1)
    async with asyncio.timeout(30):
        await ended.wait()
    await shop.broker.stop()
    assert await shop.state() == NOTHING


@pytest.mark.parametrize("fails", [False, True])
async def test_batch_commits_as_one_or_leaves_nothing(shop: EffectsShop, *, fails: bool) -> None:
    @shop.broker.subscriber(
        "orders", transactional=True, batch=True, batch_size=3, batch_wait=1.0, retry_strategy=NoRetry()
    )
    async def handle(bodies: list[int], session: OutboxSession, outbox: Broker) -> None:
        for body in bodies:
            await shop.write(session, body)
        await outbox.publish(len(bodies), "published")
        if fails:
            raise ValueError

    await shop.deliver(1, 2, 3)
    await (shop.becomes(dead=3) if fails else shop.becomes(effects=[1, 2, 3], messages={"published": [b"3"]}))


async def test_concurrent_handlers_have_sessions_of_their_own_that_are_closed_after_them(shop: EffectsShop) -> None:
    together = asyncio.Barrier(2)
    sessions: list[AsyncSession] = []

    @shop.broker.subscriber("orders", transactional=True, max_workers=2)
    async def handle(body: int, session: OutboxSession, outbox: Broker) -> None:
        await shop.write(session, body)
        async with asyncio.timeout(30):
            await together.wait()
        sessions.append(session)
        await outbox.publish(7, "published")

    await shop.deliver(1, 2)
    await shop.becomes(effects=[1, 2], messages={"published": [b"7", b"7"]})
    assert sessions[0] is not sessions[1]
    await eventually(lambda: not any(session.in_transaction() for session in sessions))

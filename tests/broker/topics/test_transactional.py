"""Transactional handlers of topics: effects, published messages and the cursor commit together, or not at all."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import AckMessage, NackMessage, RejectMessage
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import ConstantRetry, NoRetry, OutboxResponse
from faststream_outbox._internal.log.settler import Settler
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from faststream_outbox.annotations import OutboxSession
from tests.broker.topics.stage import Stage, Then

LATER = ConstantRetry(delay_seconds=1000)
SOON = ConstantRetry(delay_seconds=0.02)
LEASE = 0.8
NACK, MANUAL = AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL
pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


def raises(error: type[BaseException] = ValueError) -> Then:
    async def fail(session: AsyncSession, message: Any) -> None:
        raise error

    return fail


def at_first(stage: Stage, then: Then, times: int = 1) -> Then:
    """Only so many times."""

    async def do(session: AsyncSession, message: Any) -> None:
        if len(stage.seen) <= times:
            await then(session, message)

    return do


async def cannot_commit(session: AsyncSession, message: Any) -> None:
    async def broken() -> None:
        raise ValueError("no commit")

    session.commit = broken  # type: ignore[method-assign]


async def acks(session: AsyncSession, message: Any) -> None:
    await message.ack()


async def nacks(session: AsyncSession, message: Any) -> None:
    await message.nack(delay=1000)


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

    (position,) = await stage.play(1, key="order-1")
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

    await stage.play(1, 2, key="order-1")
    await stage.caught_up()
    assert stage.seen == [1, 1, 2]
    assert await stage.effect_numbers() == [1, 2]
    assert [row["body"] for row in await stage.in_log("bills")] == [b"2", b"3"]


@pytest.mark.parametrize(
    ("then", "policy", "left"),
    [
        pytest.param(raises(), NACK, "retry", id="raises"),
        pytest.param(raises(NackMessage), NACK, "retry", id="raises NackMessage"),
        pytest.param(raises(asyncio.CancelledError), NACK, "retry", id="raises CancelledError"),
        pytest.param(raises(RejectMessage), NACK, "parked", id="raises RejectMessage"),
        pytest.param(raises(AckMessage), NACK, None, id="raises AckMessage"),
        pytest.param(acks, NACK, None, id="acks"),
        pytest.param(acks, MANUAL, None, id="acks under MANUAL"),
        pytest.param(nacks, NACK, "retry", id="nacks"),
        pytest.param(nacks, MANUAL, "retry", id="nacks under MANUAL"),
        pytest.param(None, MANUAL, "retry", id="does not decide under MANUAL"),
    ],
)
async def test_transaction_commits_where_the_message_is_done(
    stage: Stage, then: Then | None, policy: AckPolicy, left: str | None
) -> None:
    stage.writes(then, ack_policy=policy, retry_strategy=LATER)
    await stage.play(1, key="order-1")
    if left is None:
        await stage.caught_up()
    else:
        await stage.has_deferred(left)
    assert await stage.effect_numbers() == ([1] if left is None else [])


@pytest.mark.parametrize("failing_attempts", [1, 2])
async def test_commit_that_fails_is_tried_again_until_it_succeeds(stage: Stage, failing_attempts: int) -> None:
    """Also at the second attempt, when the message comes from those deferred."""
    stage.writes(at_first(stage, cannot_commit, failing_attempts), retry_strategy=SOON)
    await stage.play(1, key="order-1")
    await stage.saw(failing_attempts + 1)
    await stage.caught_up()
    assert stage.seen == [1] * (failing_attempts + 1)
    assert await stage.effect_numbers() == [1]


async def test_constraint_that_fails_at_commit_parks_the_message(stage: Stage) -> None:
    await stage.sql("alter table effects add constraint later unique (number) deferrable initially deferred")
    await stage.sql("alter table effects drop constraint effects_pkey")

    async def again(session: AsyncSession, message: Any) -> None:
        await stage.write(session, 1)

    stage.writes(at_first(stage, again), retry_strategy=NoRetry())
    await stage.play(1, 2, key="order-1")
    (parked,) = await stage.has_deferred("parked")
    await stage.wrote(2)
    assert "later" in (parked.error_message or "")


async def test_lost_lease_rolls_back(stage: Stage) -> None:
    """Who has lost its slots commits nothing, and whoever took them does it once."""

    async def lose(session: AsyncSession, message: Any) -> None:
        await stage.sql(f"update {stage.log_tables.offsets.name} set owner = null, until = null, epoch = epoch + 1")

    stage.writes(at_first(stage, lose), retry_strategy=SOON)
    await stage.play(1, key="order-1")
    await stage.saw(2)
    await stage.caught_up()
    assert stage.seen == [1, 1]
    assert await stage.effect_numbers() == [1]


async def test_fence_that_fails_leaves_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> None:
        raise ValueError("no fence")

    monkeypatch.setattr(Settler, "settle_within", broken)
    stage.writes(retry_strategy=LATER)
    await stage.play(1, key="order-1")
    await stage.has_deferred("retry")
    assert await stage.effect_numbers() == []


async def test_failures_before_a_success_are_kept(stage: Stage) -> None:
    """What failed in the same batch is deferred in the transaction of the one that follows."""

    async def fail(session: AsyncSession, message: Any) -> None:
        if stage.seen[-1] < 0:
            raise ValueError

    stage.writes(fail, retry_strategy=LATER)
    await stage.publish(-1, 2, -3, 4, keys=["a", "b", "c", "a"])
    await stage.broker.start()
    found = await stage.has_deferred("retry", "retry", "deferred")
    assert [each.key for each in found] == ["orders/a", "orders/c", "orders/a"]
    assert await stage.effect_numbers() == [2]


async def test_session_of_its_own_is_not_part_of_it(stage: Stage) -> None:
    async def publish(session: AsyncSession, message: Any) -> None:
        await stage.send(1, topic="bills")
        raise ValueError

    stage.writes(publish, retry_strategy=LATER)
    await stage.play(1, key="order-1")
    await stage.has_deferred("retry")
    assert [row["body"] for row in await stage.in_log("bills")] == [b"1"]


async def test_key_waits_for_a_message_whose_commit_failed(stage: Stage) -> None:
    stage.writes(at_first(stage, cannot_commit), retry_strategy=LATER)
    await stage.publish(1, 2, 3, keys=["a", "a", "b"])
    await stage.broker.start()
    await stage.has_deferred("retry", "deferred")
    await stage.wrote(3)
    assert stage.seen == [1, 3]


async def test_handler_that_is_cancelled_by_a_stop_leaves_nothing_and_no_attempt(stage: Stage) -> None:
    stage.replace(graceful_timeout=0.1)
    begun, may_end, deliveries = asyncio.Event(), asyncio.Event(), []

    async def wait(session: AsyncSession, message: Any) -> None:
        deliveries.append(message.raw_message.deliveries_count)
        begun.set()
        await may_end.wait()

    stage.writes(wait, retry_strategy=SOON)
    await stage.play(1, key="order-1")
    await begun.wait()
    await stage.broker.stop()
    assert (await stage.effect_numbers(), await stage.deferred()) == ([], [])
    may_end.set()
    await stage.broker.start()
    await stage.caught_up()
    assert deliveries == [1, 1]
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
    await stage.send(1)
    await stage.send(10, topic="requests", reply_to="answers")
    await stage.caught_up()
    await stage.caught_up("billing", "requests")
    assert stage.seen == [1, 1]
    assert [row["body"] for row in await stage.in_log("bills")] == [b"2"]
    assert await stage.in_queue("answers") == [b"11"]


@pytest.mark.parametrize(
    ("policy", "batch"),
    [
        pytest.param(NACK, False, id="single"),
        pytest.param(NACK, True, id="batch"),
        pytest.param(MANUAL, True, id="batch under MANUAL"),
    ],
)
async def test_what_was_acknowledged_before_an_error_comes_again(stage: Stage, policy: AckPolicy, batch: bool) -> None:
    """Its effects were rolled back with everything else: it is not done."""

    async def ack(session: AsyncSession, message: Any) -> None:
        await message.ack()
        if len(stage.seen) == 1:
            raise ValueError

    stage.writes(ack, ack_policy=policy, batch=batch, retry_strategy=SOON)
    await stage.publish(1, 2, key="order-1")
    await stage.broker.start()
    await stage.saw(2)
    await stage.caught_up()
    assert stage.seen[0] == ([1, 2] if batch else 1)
    assert await stage.effect_numbers() == [1, 2]


@pytest.mark.parametrize("then", [raises(), cannot_commit], ids=["the handler", "the commit"])
async def test_batch_is_one_transaction_that_comes_again_whole(stage: Stage, then: Then) -> None:
    """The second time all of it comes from what was deferred."""
    stage.writes(at_first(stage, then, 2), batch=True, retry_strategy=SOON)
    await stage.publish(1, 2, 3, keys=["a", "b", "a"])
    await stage.broker.start()
    await stage.caught_up()
    assert stage.seen[0] == [1, 2, 3]
    assert await stage.effect_numbers() == [1, 2, 3]


@pytest.mark.slow
async def test_batch_behind_a_waiting_key_loses_nothing(stage: Stage) -> None:
    """One message of the batch may run, the others are deferred: all of them are handled once."""
    # Long enough for the others to be published and read meanwhile.
    stage.writes(at_first(stage, raises()), batch=True, retry_strategy=ConstantRetry(delay_seconds=4.0))
    await stage.play(1, key="a")
    await stage.has_deferred("retry")
    await stage.publish(2, 10, 3, keys=["a", "b", "a"])
    await stage.caught_up()
    assert stage.seen[:2] == [[1], [10]]
    assert await stage.effect_numbers() == [1, 2, 3, 10]


async def test_message_nacked_in_a_batch_rolls_all_of_it_back(stage: Stage) -> None:
    """What is not done cannot commit; the others must come again, for their effects are gone."""

    async def nack_one(session: AsyncSession, batch: Any) -> None:
        await batch.messages[1].nack(delay=0.02)

    stage.writes(at_first(stage, nack_one), batch=True, retry_strategy=SOON)
    await stage.publish(1, 2, 3, keys=["a", "b", "c"])
    await stage.broker.start()
    await stage.caught_up()
    assert await stage.effect_numbers() == [1, 2, 3]


@pytest.fixture(params=["asyncpg", "psycopg"])
async def strict(request: pytest.FixtureRequest, database_url: URL, level: str) -> AsyncIterator[AsyncEngine]:
    """An engine of that isolation level, on each of the drivers in turn."""
    url = database_url.set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url, isolation_level=level)
    yield engine
    await engine.dispose()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("batch", [False, True], ids=["single", "batch"])
async def test_handler_longer_than_its_lease_runs_once(stage: Stage, strict: AsyncEngine, batch: bool) -> None:
    """Also above READ COMMITTED."""
    broker = stage.another(engine=strict)

    async def take_long(session: AsyncSession, message: Any) -> None:
        await asyncio.sleep(1.5 * LEASE)

    retry = ConstantRetry(delay_seconds=0.05, max_attempts=3)
    stage.writes(take_long, broker=broker, batch=batch, lease_ttl_seconds=LEASE, retry_strategy=retry)
    await stage.publish(1, key="order-1")
    await broker.start()
    await stage.caught_up()
    assert len(stage.seen) == 1
    assert await stage.effect_numbers() == [1]
    await broker.stop()

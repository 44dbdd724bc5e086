"""What becomes of a message: every way for a handler to end, under every policy, in a queue and in a topic."""

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry
from faststream_outbox.annotations import OutboxMessage
from faststream_outbox.errors import InvalidOption
from tests.broker.endings import (
    LEASE_SECONDS,
    MANUAL,
    RAISED,
    STRATEGY_DELAY,
    TABLE,
    UNDECIDED,
    Endings,
    QueueEndings,
    TopicEndings,
    ending_in,
    failing_parser,
)
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


class FailingOnReceipt(BaseMiddleware):
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
        broker.add_middleware(FailingOnReceipt)
    for policy in TABLE[ending]:
        endings.subscriber(
            policy.name,
            ack_policy=policy,
            retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY),
            lease_ttl_seconds=LEASE_SECONDS,
            parser=failing_parser if ending == "parser raises" else None,
        )(ending_in(ending))
    await broker.start()
    # Who stops consuming does not read what is behind.
    alone = ending == "StopConsume"
    numbers = {policy: await endings.publish(policy.name, alone=alone) for policy in TABLE[ending]}
    became = {policy: await endings.of(policy.name, number) for policy, number in numbers.items()}
    expected = {policy: endings.undecided if end is UNDECIDED else end for policy, end in TABLE[ending].items()}
    assert became == expected
    if ending in RAISED and TABLE[ending][MANUAL] is UNDECIDED:
        assert str(became[MANUAL].error).endswith(type(RAISED[ending]).__name__)


async def test_ack_first_is_refused_and_says_why(endings: Endings) -> None:
    with pytest.raises(InvalidOption, match="crash loses it"):
        endings.subscriber("orders", ack_policy=AckPolicy.ACK_FIRST)


@pytest.mark.parametrize(("choice", "rows", "letters"), [("retry", 1, 0), ("done", 0, 0), ("dead", 0, 1)])
async def test_undecided_message_follows_the_subscribers_choice(
    stage: Stage, choice: Any, rows: int, letters: int
) -> None:
    @stage.broker.subscriber(
        "orders", ack_policy=MANUAL, on_undecided=choice, retry_strategy=ConstantRetry(delay_seconds=STRATEGY_DELAY)
    )
    async def handle(body: int) -> None: ...

    await stage.broker.start()
    async with AsyncSession(stage.engine) as session, session.begin():
        await stage.broker.publish(1, "orders", session=session)

    async def it_was_settled() -> bool:
        left = await stage.sql(f"select * from {stage.table.name}")
        return all(row["last_attempt_at"] is not None and row["acquired_token"] is None for row in left)

    await eventually(it_was_settled)
    left, dead = [await stage.sql(f"select * from {one.name}") for one in (stage.table, stage.dlq_table)]
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

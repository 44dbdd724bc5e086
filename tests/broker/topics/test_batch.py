"""Batch subscribers of topics: lists of bodies, outcomes for each message, order where all of it fails."""

from collections import Counter

import pytest
from faststream import AckPolicy
from pydantic import BaseModel

from faststream_outbox import ConstantRetry, NoRetry
from faststream_outbox._internal.events.types import Died, Handled, Released, Retried, Started
from faststream_outbox.annotations import OutboxBatchMessage
from tests.broker.topics.stage import Stage

LATER = ConstantRetry(delay_seconds=1000)
pytestmark = pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")


class Order(BaseModel):
    id: int


async def test_handler_gets_a_list_of_bodies(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", batch=True, batch_size=10)
    async def handle(orders: list[Order], batch: OutboxBatchMessage) -> None:
        stage.seen.append((orders, [message.raw_message.key for message in batch.messages]))

    positions = await stage.publish({"id": 1}, {"id": 2}, {"id": 3}, keys=["a", "b", "a"])
    await stage.broker.start()
    assert await stage.saw(1) == [([Order(id=1), Order(id=2), Order(id=3)], ["a", "b", "a"])]
    await stage.caught_up()
    assert [event.id for event in stage.witness.of(Handled)] == positions


async def test_batch_has_at_most_its_size(stage: Stage) -> None:
    stage.reads(batch=True, batch_size=4)
    await stage.publish(*range(10), key="a")
    await stage.broker.start()
    await stage.caught_up()
    assert stage.seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


async def test_messages_may_be_decided_one_by_one(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", batch=True, retry_strategy=LATER)
    async def handle(bodies: list[str], batch: OutboxBatchMessage) -> None:
        for message in batch.messages:
            match message.body:
                case b"reject":
                    await message.reject()
                case b"nack":
                    await message.nack()
                case b"snooze":
                    await message.snooze(500)
                case _:
                    pass

    await stage.publish("fine", "reject", "nack", "snooze", keys=["a", "b", "c", "d"])
    await stage.broker.start()
    found = await stage.has_deferred("parked", "retry", "retry")
    assert [(each.key, each.attempts) for each in found] == [("orders/b", 1), ("orders/c", 1), ("orders/d", 0)]


@pytest.mark.parametrize(
    ("policy", "states"),
    [
        (AckPolicy.ACK, []),
        (AckPolicy.REJECT_ON_ERROR, ["parked"] * 3),
        (AckPolicy.NACK_ON_ERROR, ["retry", "retry", "deferred"]),
        (AckPolicy.MANUAL, ["retry", "retry", "deferred"]),
    ],
    ids=str,
)
async def test_policy_holds_for_a_whole_batch(stage: Stage, policy: AckPolicy, states: list[str]) -> None:
    stage.reads(1, 2, 3, batch=True, ack_policy=policy, retry_strategy=LATER)
    await stage.publish(1, 2, 3, keys=["a", "b", "a"])
    await stage.broker.start()
    await stage.saw(1)
    found = await stage.has_deferred(*states)
    assert [each.key for each in found] == ["orders/a", "orders/b", "orders/a"][: len(states)]
    assert [each.error_message for each in found[:1]] == ["broken"][: len(states)]


async def test_blocking_batch_holds_the_key_of_what_is_parked(stage: Stage) -> None:
    stage.reads(1, batch=True, batch_size=2, retry_strategy=NoRetry(), on_dead="block")
    await stage.publish(1, 2, 3, 10, keys=["a", "a", "a", "b"])
    await stage.broker.start()
    await stage.has_deferred("parked", "deferred", "deferred")
    # The one that failed with its neighbour runs alone before it is parked.
    assert await stage.saw(3) == [[1, 2], [1], [10]]


async def test_publisher_of_a_batch_handler_publishes_its_result(stage: Stage) -> None:
    stage.broker.publisher(topic="sums")(stage.reads(batch=True, returns=sum))
    await stage.publish(1, 2, 3, key="a")
    await stage.broker.start()
    await stage.caught_up()
    assert [row["body"] for row in await stage.in_log("sums")] == [b"6"]


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.REJECT_ON_ERROR], ids=str)
async def test_poisoned_batch_parks_the_guilty_message_alone(
    stage: Stage, policy: AckPolicy, transactional: bool
) -> None:
    """The others of the batch run once more, in lists of one, and no attempt of theirs is counted."""
    poison = 37

    @stage.broker.subscriber(
        topic="orders",
        group="billing",
        batch=True,
        batch_size=100,
        transactional=transactional,
        ack_policy=policy,
        retry_strategy=ConstantRetry(delay_seconds=0.01, max_attempts=3),
    )
    async def handle(bodies: list[int]) -> None:
        if poison in bodies:
            raise ValueError(poison)
        stage.seen += bodies

    positions = await stage.publish(*range(100), keys=[f"order-{number % 20}" for number in range(100)])
    await stage.broker.start()
    await stage.saw(99)
    (deferral,) = await stage.has_deferred("parked")
    assert deferral.position == positions[poison]
    assert sorted(stage.seen) == [number for number in range(100) if number != poison]
    for key in range(20):
        of_key = [number for number in stage.seen if number % 20 == key]
        assert of_key == sorted(of_key)
    await stage.witness.wait(Handled, 99)
    await stage.witness.wait(Died)
    began = Counter((event.id, event.deliveries_count) for event in stage.witness.of(Started))
    ended = stage.witness.of(Handled, Retried, Died, Released)
    assert began == Counter((event.id, event.deliveries_count) for event in ended)

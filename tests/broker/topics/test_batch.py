"""Batch subscribers of topics: lists of bodies, outcomes for each message, order where all of it fails."""

from collections import Counter
from typing import Any

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

    await stage.publish({"id": 1}, {"id": 2}, {"id": 3}, keys=["a", "b", "a"])
    await stage.broker.start()
    assert await stage.saw(1) == [([Order(id=1), Order(id=2), Order(id=3)], ["a", "b", "a"])]
    await stage.caught_up()


async def test_batch_has_at_most_its_size(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", batch=True, batch_size=4)
    async def handle(bodies: list[int]) -> None:
        stage.seen.append(bodies)

    await stage.publish(*range(10), key="a")
    await stage.broker.start()
    await stage.caught_up()
    assert stage.seen == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


async def test_each_message_of_a_batch_is_told_as_handled(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", batch=True)
    async def handle(bodies: list[int]) -> None: ...

    positions = await stage.publish(1, 2, 3, keys=["a", "b", "a"])
    await stage.broker.start()
    await stage.witness.wait(Handled, 3)
    assert [event.id for event in stage.witness.of(Handled)] == positions


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


async def test_exception_fails_all_and_keeps_the_order(stage: Stage) -> None:
    failures = [ValueError("not yet")]

    @stage.broker.subscriber(
        topic="orders", group="billing", batch=True, retry_strategy=ConstantRetry(delay_seconds=0.05)
    )
    async def handle(bodies: list[int]) -> None:
        if failures:
            raise failures.pop()
        stage.seen.extend(bodies)

    await stage.publish(1, 10, 2, 20, 3, keys=["a", "b", "a", "b", "a"])
    await stage.broker.start()
    await stage.caught_up()
    assert [body for body in stage.seen if body < 10] == [1, 2, 3]
    assert [body for body in stage.seen if body >= 10] == [10, 20]


async def test_failed_batch_waits_behind_the_first_of_each_key(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", batch=True, retry_strategy=LATER)
    async def handle(bodies: list[int]) -> None:
        raise ValueError("broken")

    await stage.publish(1, 10, 2, keys=["a", "b", "a"])
    await stage.broker.start()
    found = await stage.has_deferred("retry", "retry", "deferred")
    assert [each.key for each in found] == ["orders/a", "orders/b", "orders/a"]
    assert found[0].error_message == "broken"


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
    @stage.broker.subscriber(topic="orders", group="billing", batch=True, ack_policy=policy, retry_strategy=LATER)
    async def handle(bodies: list[int]) -> None:
        stage.seen.append(bodies)
        raise ValueError

    await stage.publish(1, 2, 3, keys=["a", "b", "a"])
    await stage.broker.start()
    await stage.saw(1)
    await stage.has_deferred(*states)


async def test_whole_batch_may_be_decided_at_once(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", batch=True)
    async def handle(bodies: list[int], batch: OutboxBatchMessage) -> None:
        await batch.messages[1].ack()
        await batch.nack(delay=500)

    await stage.publish(1, 2, 3, keys=["a", "b", "c"])
    await stage.broker.start()
    found = await stage.has_deferred("retry", "retry")
    assert [each.key for each in found] == ["orders/a", "orders/c"]


async def test_blocking_batch_holds_the_key_of_what_is_parked(stage: Stage) -> None:
    @stage.broker.subscriber(
        topic="orders", group="billing", batch=True, batch_size=2, retry_strategy=NoRetry(), on_dead="block"
    )
    async def handle(bodies: list[int]) -> None:
        stage.seen.append(bodies)
        if 1 in bodies:
            raise ValueError

    await stage.publish(1, 2, 3, 10, keys=["a", "a", "a", "b"])
    await stage.broker.start()
    await stage.has_deferred("parked", "deferred", "deferred")
    # The one that failed with its neighbour runs alone before it is parked.
    assert await stage.saw(3) == [[1, 2], [1], [10]]


async def test_publisher_of_a_batch_handler_publishes_its_result(stage: Stage) -> None:
    @stage.broker.publisher(topic="sums")
    @stage.broker.subscriber(topic="orders", group="billing", batch=True)
    async def handle(bodies: list[int]) -> int:
        return sum(bodies)

    await stage.publish(1, 2, 3, key="a")
    await stage.broker.start()
    await stage.caught_up()
    assert [row["body"] for row in await stage.in_log("sums")] == [b"6"]


async def test_headers_of_a_batch_are_there_for_each(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", batch=True)
    async def handle(bodies: list[int], batch: OutboxBatchMessage) -> None:
        stage.seen.extend((each["tenant"], each["correlation_id"]) for each in batch.batch_headers)

    async with stage.engine.begin() as connection:
        for tenant in ("acme", "umbrella"):
            await stage.broker.publish(
                1, topic="orders", headers={"tenant": tenant}, correlation_id=f"of {tenant}", session=connection
            )
    await stage.broker.start()
    assert await stage.saw(2) == [("acme", "of acme"), ("umbrella", "of umbrella")]


async def test_members_share_batches_and_keep_the_order(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", batch=True, batch_size=5, max_workers=2)
    async def handle(bodies: list[tuple[str, int]]) -> None:
        stage.seen.extend(bodies)

    await stage.broker.start()
    await stage.shared_by(2)
    keys = [f"order-{number}" for number in range(12)]
    for number in range(6):
        await stage.publish(*[[key, number] for key in keys], keys=keys)
    await stage.caught_up()
    found: dict[str, list[Any]] = {key: [] for key in keys}
    for key, number in stage.seen:
        found[key].append(number)
    assert found == {key: [*range(6)] for key in keys}


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

"""Topics on PostgreSQL: every group reads everything, from where it starts, in order per key, and its members share."""

import asyncio
import logging
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from faststream import AckPolicy
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import ConstantRetry, OutboxRouter
from faststream_outbox._internal.events.types import KeyHalted
from faststream_outbox.log import Outbox
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

KEYS = [f"order-{number}" for number in range(20)]


async def publish_in_turns(stage: Stage, rounds: int) -> None:
    """Numbers 0, 1, 2… under each of the keys, one transaction for each round."""
    for number in range(rounds):
        await stage.publish(*[[key, number] for key in KEYS], keys=KEYS)


def by_key(seen: list[Any]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for key, number in seen:
        found[key].append(number)
    return found


async def test_every_group_reads_everything(stage: Stage) -> None:
    for group in ("billing", "mail"):
        stage.reads(group=group, notes=lambda body, _, group=group: (group, body))
    await stage.play(1, 2, 3, key="order-1")
    await stage.caught_up("billing")
    await stage.caught_up("mail")
    for group in ("billing", "mail"):
        assert [body for name, body in stage.seen if name == group] == [1, 2, 3]


async def test_group_that_comes_later_begins_at_the_beginning(stage: Stage) -> None:
    await stage.publish(1, 2, key="order-1")
    stage.reads(group="late")
    await stage.broker.start()
    assert await stage.saw(2) == [1, 2]


async def test_order_of_a_key_is_kept_by_members_of_one_broker(stage: Stage, driver_engine: AsyncEngine) -> None:
    stage.engine = driver_engine
    broker = stage.replace(engine=driver_engine)

    @broker.subscriber(topic="orders", group="billing", max_workers=2)
    async def handle(body: tuple[str, int]) -> None:
        await asyncio.sleep(0)
        stage.seen.append(body)

    await broker.start()
    await publish_in_turns(stage, 10)
    await stage.caught_up()
    assert by_key(stage.seen) == {key: [*range(10)] for key in KEYS}
    await broker.stop()


async def test_members_of_one_broker_share_the_slots_and_handle_at_the_same_time(stage: Stage) -> None:
    both = asyncio.Barrier(2)

    @stage.broker.subscriber(topic="orders", group="billing", max_workers=2)
    async def handle(body: tuple[str, int]) -> None:
        if len(stage.seen) < 2:
            stage.seen.append(body)
            await both.wait()

    await stage.broker.start()
    await stage.shared_by(2)
    assert [size for _, size in await stage.slots()] == [128, 128]
    await publish_in_turns(stage, 1)
    await stage.saw(2)
    await stage.caught_up()


async def test_two_brokers_share_a_group_and_keep_the_order(stage: Stage) -> None:
    for broker in (stage.broker, stage.another()):
        stage.reads(broker=broker, notes=lambda body, _, broker=broker: (id(broker), body))
        await broker.start()
    await stage.shared_by(2)
    await publish_in_turns(stage, 10)
    await stage.caught_up()
    assert by_key([body for _, body in stage.seen]) == {key: [*range(10)] for key in KEYS}
    assert len({handler for handler, _ in stage.seen}) == 2


async def test_one_broker_serves_queues_and_topics(stage: Stage) -> None:
    stage.reads(notes=lambda body, _: ("topic", body))

    @stage.broker.subscriber("orders")
    async def of_queue(body: int) -> None:
        stage.seen.append(("queue", body))

    await stage.play(1, key="order-1")
    await stage.send(2, "orders")
    await stage.saw(2)
    await stage.caught_up()

    async def the_queue_is_empty() -> bool:
        return not await stage.in_queue("orders")

    await eventually(the_queue_is_empty)
    assert sorted(stage.seen) == [("queue", 2), ("topic", 1)]


async def test_dynamic_subscriber_reads_while_it_is_there(stage: Stage) -> None:
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await stage.play(1, key="order-1")
    subscriber = stage.broker.subscriber(topic="orders", group="billing", persistent=False)
    subscriber(handle)
    await subscriber.start()
    await stage.saw(1)
    await subscriber.stop()
    await stage.publish(2, key="order-1")
    assert [owner for owner, _ in await stage.slots()] == [None]
    async with subscriber:
        assert await stage.saw(2) == [1, 2]


@pytest.mark.parametrize("batch", [False, True])
async def test_access_log_names_the_topic(stage: Stage, caplog: pytest.LogCaptureFixture, batch: bool) -> None:
    stage.replace(logger=logging.getLogger("shop"))
    stage.reads(batch=batch)
    caplog.set_level(logging.INFO, "shop")
    await stage.play(1)
    await stage.caught_up()
    reported = [record for record in caplog.records if record.getMessage() == "Processed"]
    assert [(record.__dict__["queue"], len(record.__dict__["message_id"])) for record in reported] == [("orders", 36)]


async def test_policy_of_the_broker_holds_for_its_topics(stage: Stage) -> None:
    stage.replace(ack_policy=AckPolicy.REJECT_ON_ERROR)
    stage.reads(1)
    await stage.play(1)
    await stage.has_deferred("parked")


async def test_group_in_the_middle_of_what_committed_together_misses_nothing(stage: Stage) -> None:
    """Also where this process has read on behalf of another group, further on, before."""

    async def nothing(message: Any) -> None: ...

    await stage.publish("a", "b", "c", key="order-1")
    await stage.outbox.dispatch(nothing, "billing", "orders", batch_size=1)
    await stage.publish("d", key="order-1")
    while await stage.outbox.dispatch(nothing, "mail", "orders"):
        pass
    await stage.publish("e", key="order-1")
    stage.reads(group="mail")
    await stage.broker.start()
    assert await stage.saw(1) == ["e"]
    late = stage.broker.subscriber(topic="orders", group="billing")

    @late
    async def bill(body: str) -> None:
        stage.seen.append(body)

    await late.start()
    await stage.caught_up("billing")
    assert stage.seen == ["e", "b", "c", "d", "e"]


async def test_group_that_starts_at_the_end_reads_what_comes_after(stage: Stage) -> None:
    await stage.publish("old")
    stage.reads(start="latest")
    await stage.broker.start()
    assert await stage.slots(), "the place is taken when the start has ended"
    await stage.publish("new")
    assert await stage.saw(1) == ["new"]


async def test_group_that_starts_at_a_time_reads_what_became_readable_since(stage: Stage) -> None:
    for body in ("old", "new"):
        await stage.publish(body)
        await stage.outbox.client.sequencer.catch_up()
    await stage.sql(f"update {stage.log_tables.ticks.name} set at = at - interval '2 hours' where tick = 1")
    stage.reads(start=datetime.now(UTC) - timedelta(hours=1))
    await stage.broker.start()
    assert await stage.saw(1) == ["new"]


async def test_start_of_a_group_that_has_read_means_nothing(stage: Stage) -> None:
    stage.reads(start="latest")
    await stage.broker.start()
    await stage.shared_by(1)
    await stage.broker.stop()
    await stage.publish("while it was away")
    await stage.broker.start()
    assert await stage.saw(1) == ["while it was away"]


async def test_outbox_starts_at_a_time_too(stage: Stage, engine: AsyncEngine) -> None:
    await stage.publish("old")
    await stage.outbox.client.sequencer.catch_up()
    later = Outbox(engine, tables=stage.log_tables, start=datetime.now(UTC) + timedelta(hours=1), listen=False)
    assert not await later.dispatch(stage.seen.append, "tomorrow")
    await later.cleanup()


async def test_slot_stops_when_too_many_wait(stage: Stage) -> None:
    stage.reads(*range(10), max_deferred=3, retry_strategy=ConstantRetry(delay_seconds=60))
    await stage.publish(*range(10), key="one")
    await stage.broker.start()
    await eventually(lambda: stage.witness.of(KeyHalted))
    # These are written after it was told.
    await stage.has_deferred("retry", "deferred", "deferred")


async def test_several_topics_are_read_by_one_subscriber(stage: Stage) -> None:
    stage.reads(topic=["orders", "returns"], max_workers=2, notes=lambda body, one: (one.raw_message.queue, body))
    await stage.publish(1, topic="orders")
    await stage.publish(2, topic="returns", key="k")
    await stage.publish(3, topic="letters")
    await stage.broker.start()
    assert sorted(await stage.saw(2)) == [("orders", 1), ("returns", 2)]
    await stage.caught_up(topic="orders")
    await stage.caught_up(topic="returns")
    rows = await stage.sql(f"select distinct uri from {stage.log_tables.offsets.name} order by 1")
    assert [row["uri"] for row in rows] == ["orders", "returns"]


async def test_several_topics_are_read_behind_a_routers_prefix(stage: Stage) -> None:
    router = OutboxRouter(prefix="shop-")
    stage.reads(broker=router, topic=("orders", "returns"))
    stage.broker.include_router(router)
    await stage.publish(1, topic="shop-orders")
    await stage.publish(2, topic="shop-returns")
    await stage.broker.start()
    assert sorted(await stage.saw(2)) == [1, 2]

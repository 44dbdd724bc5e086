"""Options of a topic's subscriber that a queue does not have: where to start, how many may wait, several topics."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import ConstantRetry, OutboxBroker, OutboxRouter, TestOutboxBroker, make_outbox_table
from faststream_outbox._internal.events.types import KeyHalted
from faststream_outbox.annotations import OutboxMessage
from faststream_outbox.errors import InvalidOption, InvalidOptionType, OutboxWarning
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.testing import fake_session
from tests.broker.topics.stage import Stage
from tests.waiting import eventually


def unused() -> OutboxBroker:
    metadata = MetaData()
    log_tables = make_log_tables(metadata, "outbox_log")
    return OutboxBroker(outbox_table=make_outbox_table(metadata), dlq_table=None, log_tables=log_tables, logger=None)


def note(stage: Stage, **options: Any) -> None:
    """Let handlers note what they read."""

    @stage.broker.subscriber(group="billing", **options)
    async def handle(body: Any, message: OutboxMessage) -> None:
        stage.seen.append((message.raw_message.queue, body))


async def test_group_that_starts_at_the_end_reads_what_comes_after(stage: Stage) -> None:
    await stage.publish("old")
    note(stage, topic="orders", start="latest")
    await stage.broker.start()

    assert await stage.slots(), "the place is taken when the start has ended"
    await stage.publish("new")
    assert await stage.saw(1) == [("orders", "new")]


async def test_group_that_starts_at_a_time_reads_what_became_readable_since(stage: Stage) -> None:
    for body in ("old", "new"):
        await stage.publish(body)
        await stage.outbox.client.sequencer.catch_up()
    ticks = stage.log_tables.ticks.name
    await stage.sql(f"update {ticks} set at = at - interval '2 hours' where tick = 1")
    note(stage, topic="orders", start=datetime.now(UTC) - timedelta(hours=1))
    await stage.broker.start()
    assert await stage.saw(1) == [("orders", "new")]


async def test_start_of_a_group_that_has_read_means_nothing(stage: Stage) -> None:
    note(stage, topic="orders", start="latest")
    await stage.broker.start()
    await stage.shared_by(1)
    await stage.broker.stop()
    await stage.publish("while it was away")
    await stage.broker.start()
    assert await stage.saw(1) == [("orders", "while it was away")]


async def test_outbox_starts_at_a_time_too(stage: Stage, engine: AsyncEngine) -> None:
    await stage.publish("old")
    await stage.outbox.client.sequencer.catch_up()
    later = Outbox(engine, tables=stage.log_tables, start=datetime.now(UTC) + timedelta(hours=1), listen=False)
    assert not await later.dispatch(stage.seen.append, "tomorrow")
    await later.cleanup()


async def test_slot_stops_when_too_many_wait(stage: Stage) -> None:
    @stage.broker.subscriber(
        topic="orders", group="billing", max_deferred=3, retry_strategy=ConstantRetry(delay_seconds=60)
    )
    async def fail(body: int) -> None:
        raise ValueError(body)

    await stage.publish(*range(10), key="one")
    await stage.broker.start()
    await eventually(lambda: stage.witness.of(KeyHalted))

    async def are_written() -> bool:
        """The three are deferred, after it was told."""
        return len(await stage.deferred()) == 3

    await eventually(are_written)


async def test_several_topics_are_read_by_one_subscriber(stage: Stage) -> None:
    note(stage, topic=["orders", "returns"], max_workers=2)
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

    @router.subscriber(topic=("orders", "returns"), group="billing")
    async def handle(body: Any) -> None:
        stage.seen.append(body)

    stage.broker.include_router(router)
    await stage.publish(1, topic="shop-orders")
    await stage.publish(2, topic="shop-returns")
    await stage.broker.start()
    assert sorted(await stage.saw(2)) == [1, 2]


async def test_test_broker_delivers_several_topics() -> None:
    broker, seen = unused(), []

    @broker.subscriber(topic=["orders", "returns"], group="billing")
    async def handle(body: int, message: OutboxMessage) -> None:
        seen.append((message.raw_message.queue, body))

    async with TestOutboxBroker(broker) as tested:
        for body, topic in enumerate(("orders", "returns", "letters"), start=1):
            await tested.publish(body, topic=topic, session=fake_session())
    assert seen == [("orders", 1), ("returns", 2)]


@pytest.mark.parametrize("topics", [["shop", "shop/orders"], ["a", "b", "a"], ["shop/", "shop"]])
def test_topics_of_which_one_holds_another_are_refused(topics: list[str]) -> None:
    """Each message of the inner one would be handled twice."""
    with pytest.raises(InvalidOption, match="twice"):
        unused().subscriber(topic=topics, group="billing")


@pytest.mark.parametrize("topics", [[], (), [1], {"orders"}, 7, [""]])
def test_what_is_no_topic_is_refused(topics: Any) -> None:
    with pytest.raises((InvalidOption, InvalidOptionType, ValueError, TypeError)):
        unused().subscriber(topic=topics, group="billing")


@pytest.mark.parametrize("option", [{"start": "latest"}, {"max_deferred": 5}])
def test_options_of_a_topic_are_refused_for_a_queue(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="for topics"):
        unused().subscriber("orders", **option)


@pytest.mark.parametrize(
    "option",
    [
        {"start": "middle"},
        {"start": datetime(2020, 1, 1)},  # noqa: DTZ001 - what is refused
        {"start": 5},
        {"max_deferred": 0},
        {"max_deferred": "many"},
    ],
)
def test_options_that_cannot_work_are_refused_at_once(option: dict[str, Any]) -> None:
    with pytest.raises((InvalidOption, InvalidOptionType)):
        unused().subscriber(topic="orders", group="billing", **option)


def test_second_subscriber_of_one_of_the_topics_is_warned_of() -> None:
    broker = unused()
    broker.subscriber(topic=["orders", "returns"], group="billing")
    with pytest.warns(OutboxWarning, match="'returns' with two subscribers"):
        broker.subscriber(topic=["letters", "returns"], group="billing")


@pytest.mark.filterwarnings("error::faststream_outbox.errors.OutboxWarning")
def test_short_leases_are_not_compared_with_an_interval_that_a_topic_does_not_have() -> None:
    unused().subscriber(topic="orders", group="billing", lease_ttl_seconds=3.0)

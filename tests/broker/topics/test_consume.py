"""Topics on PostgreSQL: every group reads everything, in order per key, and its members share."""

import asyncio
import logging
from collections import defaultdict
from typing import Any

import pytest
from faststream import AckPolicy
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.events.types import Handled
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.annotations import OutboxMessage
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


async def test_message_reaches_its_group(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: dict[str, int]) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish({"id": 1}, key="order-1")
    assert await stage.saw(1) == [{"id": 1}]
    await stage.caught_up()


async def test_every_group_reads_everything(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def bill(body: int) -> None:
        stage.seen.append(("billing", body))

    @stage.broker.subscriber(topic="orders", group="mail")
    async def mail(body: int) -> None:
        stage.seen.append(("mail", body))

    await stage.broker.start()
    await stage.publish(1, 2, 3, key="order-1")
    await stage.caught_up("billing")
    await stage.caught_up("mail")
    assert [body for group, body in stage.seen if group == "billing"] == [1, 2, 3]
    assert [body for group, body in stage.seen if group == "mail"] == [1, 2, 3]


async def test_group_that_comes_later_begins_at_the_beginning(stage: Stage) -> None:
    await stage.publish(1, 2, key="order-1")

    @stage.broker.subscriber(topic="orders", group="late")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    assert await stage.saw(2) == [1, 2]


async def test_group_goes_on_where_it_stopped(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.saw(1)
    await stage.broker.stop()
    await stage.publish(2, key="order-1")
    await stage.broker.start()
    await stage.caught_up()
    assert stage.seen == [1, 2]


async def test_messages_of_other_topics_do_not_arrive(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: str) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    for topic in ("orders2", "order", "returns", "orders"):
        await stage.publish(topic, topic=topic, key="1")
    await stage.caught_up()
    assert stage.seen == ["orders"]


async def test_topic_below_another_one_belongs_to_both(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: str) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish("below", topic="orders/eu", key="1")
    await stage.publish("itself", key="1")
    await stage.caught_up()
    assert sorted(stage.seen) == ["below", "itself"]


async def test_message_without_a_key_arrives(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish(1, 2, 3)
    await stage.caught_up()
    assert stage.seen == [1, 2, 3]


@pytest.mark.parametrize("members", [1, 2])
async def test_order_of_a_key_is_kept_by_members_of_one_broker(stage: Stage, members: int) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", max_workers=members)
    async def handle(body: tuple[str, int]) -> None:
        await asyncio.sleep(0)
        stage.seen.append(body)

    await stage.broker.start()
    await publish_in_turns(stage, 10)
    await stage.caught_up()
    assert by_key(stage.seen) == {key: [*range(10)] for key in KEYS}


async def test_members_of_one_broker_share_the_slots(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", max_workers=2)
    async def handle(body: tuple[str, int]) -> None: ...

    await stage.broker.start()
    await stage.shared_by(2)
    assert [size for _, size in await stage.slots()] == [128, 128]


async def test_members_of_one_broker_handle_at_the_same_time(stage: Stage) -> None:
    both = asyncio.Barrier(2)

    @stage.broker.subscriber(topic="orders", group="billing", max_workers=2)
    async def handle(body: tuple[str, int]) -> None:
        if len(stage.seen) < 2:
            stage.seen.append(body)
            await both.wait()

    await stage.broker.start()
    await stage.shared_by(2)
    await publish_in_turns(stage, 1)
    await stage.saw(2)
    await stage.caught_up()


async def test_two_brokers_share_a_group_and_keep_the_order(stage: Stage) -> None:
    brokers = [stage.broker, stage.another()]
    handled: list[list[Any]] = [[], []]

    def register(broker: OutboxBroker, mine: list[Any]) -> None:
        @broker.subscriber(topic="orders", group="billing")
        async def handle(body: tuple[str, int]) -> None:
            mine.append(body)
            stage.seen.append(body)

    for broker, mine in zip(brokers, handled, strict=True):
        register(broker, mine)
        await broker.start()
    await stage.shared_by(2)
    await publish_in_turns(stage, 10)
    await stage.caught_up()
    assert by_key(stage.seen) == {key: [*range(10)] for key in KEYS}
    assert all(handled)


async def test_broker_that_joins_while_messages_flow_breaks_no_order(stage: Stage) -> None:
    late = stage.another()
    handled: list[Any] = []

    @stage.broker.subscriber(topic="orders", group="billing")
    async def first(body: tuple[str, int]) -> None:
        stage.seen.append(body)

    @late.subscriber(topic="orders", group="billing")
    async def second(body: tuple[str, int]) -> None:
        handled.append(body)
        stage.seen.append(body)

    await stage.broker.start()
    await publish_in_turns(stage, 5)
    await late.start()
    for number in range(5, 15):
        await stage.publish(*[[key, number] for key in KEYS], keys=KEYS)
        await asyncio.sleep(0.01)
    await stage.shared_by(2)
    for number in range(15, 20):
        await stage.publish(*[[key, number] for key in KEYS], keys=KEYS)
    await stage.caught_up()
    assert by_key(stage.seen) == {key: [*range(20)] for key in KEYS}
    assert handled


async def test_one_broker_serves_queues_and_topics(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def of_topic(body: int) -> None:
        stage.seen.append(("topic", body))

    @stage.broker.subscriber("orders")
    async def of_queue(body: int) -> None:
        stage.seen.append(("queue", body))

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    async with stage.engine.begin() as connection:
        await stage.broker.publish(2, "orders", session=connection)
    await stage.saw(2)
    await stage.caught_up()

    async def the_queue_is_empty() -> bool:
        return not await stage.in_queue("orders")

    await eventually(the_queue_is_empty)
    assert sorted(stage.seen) == [("queue", 2), ("topic", 1)]


async def test_dynamic_subscriber_reads_while_it_is_there(stage: Stage) -> None:
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    subscriber = stage.broker.subscriber(topic="orders", group="billing", persistent=False)
    subscriber(handle)
    await subscriber.start()
    await stage.saw(1)
    await subscriber.stop()
    await stage.publish(2, key="order-1")
    assert [owner for owner, _ in await stage.slots()] == [None]
    async with subscriber:
        assert await stage.saw(2) == [1, 2]


async def test_handlers_of_one_subscriber_are_chosen_by_their_filters(stage: Stage) -> None:
    subscriber = stage.broker.subscriber(topic="orders", group="billing")

    async def is_big(message: OutboxMessage) -> bool:
        return "big" in message.headers

    @subscriber(filter=is_big)
    async def big(body: int) -> None:
        stage.seen.append(("big", body))

    @subscriber
    async def small(body: int) -> None:
        stage.seen.append(("small", body))

    await stage.broker.start()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="orders", key="1", session=connection)
        await stage.broker.publish(2, topic="orders", key="1", headers={"big": "yes"}, session=connection)
    assert await stage.saw(2) == [("small", 1), ("big", 2)]


async def test_topics_work_on_psycopg(
    psycopg_engine: AsyncEngine, table: Table, dlq_table: Table, log_tables: LogTables, effects: Table
) -> None:
    stage = Stage(psycopg_engine, (table, dlq_table), log_tables, effects)

    @stage.broker.subscriber(topic="orders", group="billing", max_workers=2)
    async def handle(body: tuple[str, int]) -> None:
        stage.seen.append(body)

    try:
        await stage.broker.start()
        await publish_in_turns(stage, 5)
        await stage.caught_up()
        assert by_key(stage.seen) == {key: [*range(5)] for key in KEYS}
    finally:
        await stage.close()


async def test_event_names_the_topic_and_the_position(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None: ...

    await stage.broker.start()
    (position,) = await stage.publish(1, key="order-1")
    event = await stage.witness.wait(Handled)
    assert (event.queue, event.id, event.deliveries_count) == ("orders", position, 1)


async def test_handler_may_be_a_plain_function(stage: Stage) -> None:
    @stage.broker.publisher(topic="bills")
    @stage.broker.subscriber(topic="orders", group="billing")
    def handle(body: int) -> int:
        return body + 1

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.caught_up()
    assert [row["body"] for row in await stage.in_log("bills")] == [b"2"]


@pytest.mark.parametrize("batch", [False, True])
async def test_access_log_names_the_topic(stage: Stage, caplog: pytest.LogCaptureFixture, batch: bool) -> None:
    broker = stage.replace(logger=logging.getLogger("shop"))

    @broker.subscriber(topic="orders", group="billing", batch=batch)
    async def handle(body: Any) -> None: ...

    caplog.set_level(logging.INFO, "shop")
    await broker.start()
    await stage.publish(1, key="order-1")
    await stage.caught_up()
    reported = [record for record in caplog.records if record.getMessage() == "Processed"]
    assert [(record.__dict__["queue"], len(record.__dict__["message_id"])) for record in reported] == [("orders", 36)]


async def test_policy_of_the_broker_holds_for_its_topics(stage: Stage) -> None:
    broker = stage.replace(ack_policy=AckPolicy.REJECT_ON_ERROR)

    @broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        raise ValueError

    await broker.start()
    await stage.publish(1, key="order-1")
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

    @stage.broker.subscriber(topic="orders", group="mail")
    async def mail(body: str) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    assert await stage.saw(1) == ["e"]
    late = stage.broker.subscriber(topic="orders", group="billing")

    @late
    async def bill(body: str) -> None:
        stage.seen.append(body)

    await late.start()
    await stage.caught_up("billing")
    assert stage.seen == ["e", "b", "c", "d", "e"]

"""What cannot work is refused at the line that asks for it, with the words that help."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import FeatureNotSupportedException, IncorrectState
from sqlalchemy import MetaData

from faststream_outbox import NoRetry, OutboxBroker, OutboxResponse, OutboxRouter, TestOutboxBroker, make_outbox_table
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType, OutboxWarning
from faststream_outbox.log import make_log_tables
from faststream_outbox.testing import fake_session
from tests.broker.topics.stage import Stage


@pytest.fixture
def broker() -> OutboxBroker:
    metadata = MetaData()
    log_tables = make_log_tables(metadata, "outbox_log")
    return OutboxBroker(outbox_table=make_outbox_table(metadata), log_tables=log_tables, logger=None)


@pytest.fixture(params=["broker", "router"])
def registrator(request: pytest.FixtureRequest, broker: OutboxBroker) -> OutboxBroker | OutboxRouter:
    return broker if request.param == "broker" else OutboxRouter()


def test_subscriber_reads_queues_or_a_topic(registrator: OutboxBroker | OutboxRouter) -> None:
    with pytest.raises(InvalidOption, match="not both: register two"):
        registrator.subscriber("orders", topic="orders", group="billing")


def test_topic_needs_a_group(registrator: OutboxBroker | OutboxRouter) -> None:
    with pytest.raises(InvalidOptionType, match="needs a group"):
        registrator.subscriber(topic="orders")


def test_group_needs_a_topic(registrator: OutboxBroker | OutboxRouter) -> None:
    with pytest.raises(InvalidOption, match="is for topics"):
        registrator.subscriber("orders", group="billing")


def test_group_alone_says_what_is_missing(registrator: OutboxBroker | OutboxRouter) -> None:
    with pytest.raises((InvalidOption, InvalidOptionType), match="topic"):
        registrator.subscriber(group="billing")


@pytest.mark.parametrize(
    "options",
    [
        {"max_deliveries": 3},
        {"on_undecided": "done"},
        {"on_lease_lost": "cancel"},
        {"batch": True, "batch_wait": 0.5},
        {"on_terminal_failure": lambda claim: None},
    ],
    ids=lambda options: list(options)[-1],
)
def test_option_that_means_nothing_for_a_topic_is_refused(
    registrator: OutboxBroker | OutboxRouter, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOption, match=f"{list(options)[-1]} means nothing for a topic"):
        registrator.subscriber(topic="orders", group="billing", **options)


def test_more_members_than_slots_are_refused(broker: OutboxBroker) -> None:
    with pytest.raises(InvalidOption, match="at most 256"):
        broker.subscriber(topic="orders", group="billing", max_workers=257)


def test_policy_that_loses_messages_is_refused(broker: OutboxBroker) -> None:
    with pytest.raises(InvalidOption, match="ACK_FIRST"):
        broker.subscriber(topic="orders", group="billing", ack_policy=AckPolicy.ACK_FIRST)


@pytest.mark.parametrize("topic", ["", "x" * 1025, "é" * 600, "nul\0"])
def test_name_that_cannot_be_a_topic_is_refused(registrator: OutboxBroker | OutboxRouter, topic: str) -> None:
    with pytest.raises(InvalidMessage, match="topic"):
        registrator.subscriber(topic=topic, group="billing")
    with pytest.raises(InvalidMessage, match="topic"):
        registrator.publisher(topic=topic)


@pytest.mark.parametrize("group", ["x" * 256, "é" * 200, "nul\0"])
def test_name_that_cannot_be_a_group_is_refused(broker: OutboxBroker, group: str) -> None:
    with pytest.raises(InvalidMessage, match="group"):
        broker.subscriber(topic="orders", group=group)


@pytest.mark.parametrize("name", [3, b"orders", {"orders"}], ids=repr)
def test_name_that_is_no_text_is_refused(broker: OutboxBroker, name: Any) -> None:
    with pytest.raises(InvalidMessageType, match="topic"):
        broker.subscriber(topic=name, group="billing")
    with pytest.raises(InvalidMessageType, match="group"):
        broker.subscriber(topic="orders", group=name)


def test_publisher_has_one_destination(registrator: OutboxBroker | OutboxRouter) -> None:
    with pytest.raises(InvalidMessage, match="not to both"):
        registrator.publisher("orders", topic="orders")


def test_publisher_of_a_topic_with_a_priority_is_refused(registrator: OutboxBroker | OutboxRouter) -> None:
    with pytest.raises(InvalidOption, match="no priority"):
        registrator.publisher(topic="orders", priority=5)


def test_response_has_one_destination() -> None:
    with pytest.raises(InvalidMessage, match="not to both"):
        OutboxResponse(1, queue="orders", topic="orders")


LATER = {
    "priority": 5,
    "activate_in": timedelta(minutes=1),
    "activate_at": datetime(2100, 1, 1, tzinfo=UTC),
    "timer_id": "t",
}


@pytest.mark.parametrize("name", LATER)
async def test_what_only_queues_can_do_is_refused_before_sql_is_sent(stage: Stage, name: str) -> None:
    async with stage.engine.begin() as connection:
        with pytest.raises(InvalidMessage, match=f"A topic takes no {name}"):
            await stage.broker.publish(1, topic="orders", session=connection, **{name: LATER[name]})  # type: ignore[arg-type]
        await stage.broker.publish(2, topic="orders", session=connection)
    assert [row["body"] for row in await stage.in_log()] == [b"2"]


@pytest.mark.parametrize("name", ["priority", "activate_in", "activate_at"])
async def test_batch_refuses_what_only_queues_can_do(stage: Stage, name: str) -> None:
    async with stage.engine.begin() as connection:
        with pytest.raises(InvalidMessage, match=f"A topic takes no {name}"):
            await stage.broker.publish_batch(1, 2, topic="orders", session=connection, **{name: LATER[name]})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LATER)
async def test_test_broker_refuses_it_too(broker: OutboxBroker, name: str) -> None:
    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(InvalidMessage, match=f"A topic takes no {name}"):
            await tested.publish(1, topic="orders", session=fake_session(), **{name: LATER[name]})  # type: ignore[arg-type]


async def test_response_that_only_queues_can_do_fails_its_message(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", retry_strategy=NoRetry())
    async def handle(body: int) -> OutboxResponse:
        return OutboxResponse(body, topic="bills", activate_in=timedelta(minutes=1))

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    (parked,) = await stage.has_deferred("parked")
    assert "A topic takes no activate_in" in (parked.error_message or "")


@pytest.mark.parametrize(("topic", "key"), [("x" * 1025, None), ("orders", "k" * 1025), ("x" * 600, "k" * 600)])
async def test_name_that_does_not_fit_is_refused_before_sql_is_sent(stage: Stage, topic: str, key: str | None) -> None:
    async with stage.engine.begin() as connection:
        with pytest.raises(InvalidMessage):
            await stage.broker.publish(1, topic=topic, key=key, session=connection)
        await stage.broker.publish(2, topic="orders", session=connection)
    assert [row["body"] for row in await stage.in_log()] == [b"2"]


async def test_message_has_one_destination(stage: Stage) -> None:
    async with stage.engine.begin() as connection:
        with pytest.raises(InvalidMessage, match="not to both"):
            await stage.broker.publish(1, "orders", topic="orders", session=connection)


async def test_keys_of_a_batch_must_be_as_many_as_its_messages(stage: Stage) -> None:
    with pytest.raises(InvalidMessage, match="give one for each"):
        await stage.publish(1, 2, keys=["a"])


async def test_publishing_without_the_logs_tables_says_what_to_pass(stage: Stage) -> None:
    broker = stage.another(log_tables=None)
    async with stage.engine.begin() as connection:
        with pytest.raises(IncorrectState, match=r"log_tables=make_log_tables\(metadata"):
            await broker.publish(1, topic="orders", session=connection)


async def test_test_broker_without_the_logs_tables_says_so_too() -> None:
    broker = OutboxBroker(outbox_table=make_outbox_table(MetaData()), logger=None)
    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(IncorrectState, match=r"log_tables=make_log_tables\(metadata"):
            await tested.publish(1, topic="orders", session=fake_session())


async def test_starting_without_the_logs_tables_says_what_to_pass(stage: Stage) -> None:
    broker, router = stage.another(log_tables=None), OutboxRouter()

    @router.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None: ...

    broker.include_router(router)
    with pytest.raises(IncorrectState, match=r"log_tables=make_log_tables\(metadata"):
        await broker.start()


async def test_broker_without_the_logs_tables_serves_queues(stage: Stage) -> None:
    broker = stage.another(log_tables=None)

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await broker.start()
    async with stage.engine.begin() as connection:
        await broker.publish(1, "orders", session=connection)
    assert await stage.saw(1) == [1]


async def test_reading_by_hand_is_refused(broker: OutboxBroker) -> None:
    subscriber = broker.subscriber(topic="orders", group="billing")
    with pytest.raises(FeatureNotSupportedException):
        await subscriber.get_one(timeout=0.1)


@pytest.mark.filterwarnings("error::faststream_outbox.errors.OutboxWarning")
def test_groups_of_one_topic_and_a_queue_of_its_name_give_no_warning(broker: OutboxBroker) -> None:
    broker.subscriber(topic="orders", group="billing")
    broker.subscriber(topic="orders", group="mail")
    broker.subscriber("orders")
    broker.subscriber(topic="orders", group="returns", transactional=True, batch=True)


def test_two_subscribers_of_one_group_give_a_warning(broker: OutboxBroker) -> None:
    broker.subscriber(topic="orders", group="billing")
    with pytest.warns(OutboxWarning, match="goes to one of them"):
        broker.subscriber(topic="orders", group="billing")

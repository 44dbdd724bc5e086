"""What cannot work is refused at the line that asks for it, with the words that help."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import FeatureNotSupportedException, IncorrectState
from sqlalchemy import MetaData

from faststream_outbox import NoRetry, OutboxBroker, OutboxResponse, OutboxRouter, TestOutboxBroker, make_outbox_table
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType, OutboxWarning
from faststream_outbox.testing import fake_session
from tests.broker.topics.stage import Stage, reads
from tests.cases import each

NO_TABLES = r"log_tables=make_log_tables\(metadata"
READS: dict[str, Any] = {"topic": "orders", "group": "billing"}


@pytest.fixture(params=["broker", "router"])
def registrator(request: pytest.FixtureRequest, broker: OutboxBroker) -> OutboxBroker | OutboxRouter:
    return broker if request.param == "broker" else OutboxRouter()


@each(
    ("options", "error", "said"),
    [
        ({"queues": "orders", **READS}, InvalidOption, "not both: register two"),
        ({"topic": "orders"}, InvalidOptionType, "needs a group"),
        ({"queues": "orders", "group": "billing"}, InvalidOption, "is for topics"),
        ({"group": "billing"}, (InvalidOption, InvalidOptionType), "topic"),
        ({**READS, "max_deliveries": 3}, InvalidOption, "max_deliveries means nothing for a topic"),
        ({**READS, "on_undecided": "done"}, InvalidOption, "on_undecided means nothing for a topic"),
        ({**READS, "on_lease_lost": "cancel"}, InvalidOption, "on_lease_lost means nothing for a topic"),
        ({**READS, "batch": True, "batch_wait": 0.5}, InvalidOption, "batch_wait means nothing for a topic"),
        ({**READS, "on_terminal_failure": print}, InvalidOption, "on_terminal_failure means nothing for a topic"),
        ({"queues": "orders", "start": "latest"}, InvalidOption, "for topics"),
        ({"queues": "orders", "max_deferred": 5}, InvalidOption, "for topics"),
    ],
)
def test_option_that_means_nothing_for_a_topic_is_refused(
    registrator: OutboxBroker | OutboxRouter, options: dict[str, Any], error: Any, said: str
) -> None:
    with pytest.raises(error, match=said):
        registrator.subscriber(**options)


@each(
    ("options", "said"),
    [
        ({"max_workers": 257}, "at most 256"),
        ({"ack_policy": AckPolicy.ACK_FIRST}, "ACK_FIRST"),
        ({"start": "middle"}, "start"),
        ({"start": datetime(2020, 1, 1)}, "start"),  # noqa: DTZ001 - what is refused
        ({"start": 5}, "start"),
        ({"max_deferred": 0}, "max_deferred"),
        ({"max_deferred": "many"}, "max_deferred"),
        # Each message of the inner one would be handled twice.
        ({"topic": ["shop", "shop/orders"]}, "twice"),
        ({"topic": ["a", "b", "a"]}, "twice"),
        ({"topic": ["shop/", "shop"]}, "twice"),
    ],
)
def test_option_that_cannot_work_is_refused(broker: OutboxBroker, options: dict[str, Any], said: str) -> None:
    with pytest.raises((InvalidOption, InvalidOptionType), match=said):
        broker.subscriber(**READS | options)


@each("topics", [[], (), [1], {"orders"}, 7, [""]])
def test_what_is_no_topic_is_refused(broker: OutboxBroker, topics: Any) -> None:
    with pytest.raises((InvalidOption, InvalidOptionType, ValueError, TypeError)):
        broker.subscriber(topic=topics, group="billing")


@each("topic", ["", "x" * 1025, "é" * 600, "nul\0"])
def test_name_that_cannot_be_a_topic_is_refused(registrator: OutboxBroker | OutboxRouter, topic: str) -> None:
    with pytest.raises(InvalidMessage, match="topic"):
        registrator.subscriber(topic=topic, group="billing")
    with pytest.raises(InvalidMessage, match="topic"):
        registrator.publisher(topic=topic)


@each("group", ["x" * 256, "é" * 200, "nul\0"])
def test_name_that_cannot_be_a_group_is_refused(broker: OutboxBroker, group: str) -> None:
    with pytest.raises(InvalidMessage, match="group"):
        broker.subscriber(topic="orders", group=group)


@each("name", [3, b"orders", {"orders"}])
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


LATER: dict[str, Any] = {
    "priority": 5,
    "activate_in": timedelta(minutes=1),
    "activate_at": datetime(2100, 1, 1, tzinfo=UTC),
    "timer_id": "t",
}
TOO_LONG: list[dict[str, Any]] = [{"topic": "x" * 1025}, {"key": "k" * 1025}, {"topic": "x" * 600, "key": "k" * 600}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *[pytest.param({name: value}, f"A topic takes no {name}", id=name) for name, value in LATER.items()],
        *[pytest.param(names, None, id=f"long {' and '.join(names)}") for names in TOO_LONG],
        pytest.param({"queue": "orders"}, "not to both", id="queue"),
    ],
)
async def test_message_that_cannot_be_a_topics_is_refused_before_sql_is_sent(
    stage: Stage, options: dict[str, Any], said: str | None
) -> None:
    async with stage.engine.begin() as connection:
        with pytest.raises(InvalidMessage, match=said):
            await stage.broker.publish(1, **{"topic": "orders"} | options, session=connection)
        await stage.broker.publish(2, topic="orders", session=connection)
    assert [row["body"] for row in await stage.in_log()] == [b"2"]


@pytest.mark.parametrize("name", ["priority", "activate_in", "activate_at"])
async def test_batch_refuses_what_only_queues_can_do(stage: Stage, name: str) -> None:
    async with stage.engine.begin() as connection:
        with pytest.raises(InvalidMessage, match=f"A topic takes no {name}"):
            await stage.broker.publish_batch(1, 2, topic="orders", session=connection, **{name: LATER[name]})


async def test_test_broker_refuses_it_too(broker: OutboxBroker) -> None:
    async with TestOutboxBroker(broker) as tested:
        for name, value in LATER.items():
            with pytest.raises(InvalidMessage, match=f"A topic takes no {name}"):
                await tested.publish(1, topic="orders", session=fake_session(), **{name: value})


async def test_response_that_only_queues_can_do_fails_its_message(stage: Stage) -> None:
    def response(body: int) -> OutboxResponse:
        return OutboxResponse(body, topic="bills", activate_in=timedelta(minutes=1))

    stage.reads(returns=response, retry_strategy=NoRetry())
    await stage.play(1)
    (parked,) = await stage.has_deferred("parked")
    assert "A topic takes no activate_in" in (parked.error_message or "")


async def test_keys_of_a_batch_must_be_as_many_as_its_messages(stage: Stage) -> None:
    with pytest.raises(InvalidMessage, match="give one for each"):
        await stage.publish(1, 2, keys=["a"])


async def test_publishing_without_the_logs_tables_says_what_to_pass(stage: Stage) -> None:
    stage.replace(log_tables=None)
    with pytest.raises(IncorrectState, match=NO_TABLES):
        await stage.send(1)


async def test_test_broker_without_the_logs_tables_says_so_too() -> None:
    broker = OutboxBroker(outbox_table=make_outbox_table(MetaData()), logger=None)
    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(IncorrectState, match=NO_TABLES):
            await tested.publish(1, topic="orders", session=fake_session())


async def test_starting_without_the_logs_tables_says_what_to_pass(stage: Stage) -> None:
    broker, router = stage.another(log_tables=None), OutboxRouter()
    reads(router, [])
    broker.include_router(router)
    with pytest.raises(IncorrectState, match=NO_TABLES):
        await broker.start()


async def test_reading_by_hand_is_refused(broker: OutboxBroker) -> None:
    with pytest.raises(FeatureNotSupportedException):
        await broker.subscriber(**READS).get_one(timeout=0.1)


@pytest.mark.filterwarnings("error::faststream_outbox.errors.OutboxWarning")
def test_groups_of_one_topic_and_a_queue_of_its_name_give_no_warning(broker: OutboxBroker) -> None:
    broker.subscriber(**READS)
    broker.subscriber(topic="orders", group="mail")
    broker.subscriber("orders")
    broker.subscriber(topic="orders", group="returns", transactional=True, batch=True)


@pytest.mark.filterwarnings("error::faststream_outbox.errors.OutboxWarning")
def test_short_leases_are_not_compared_with_an_interval_that_a_topic_does_not_have(broker: OutboxBroker) -> None:
    broker.subscriber(**READS, lease_ttl_seconds=3.0)


@each(
    ("first", "second", "said"),
    [
        ("orders", "orders", "goes to one of them"),
        (["orders", "returns"], ["letters", "returns"], "'returns' with two subscribers"),
    ],
)
def test_two_subscribers_of_one_group_give_a_warning(broker: OutboxBroker, first: Any, second: Any, said: str) -> None:
    broker.subscriber(topic=first, group=said)
    with pytest.warns(OutboxWarning, match=said):
        broker.subscriber(topic=second, group=said)

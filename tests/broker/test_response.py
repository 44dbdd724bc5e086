"""What may be said of a message is said alike, and arrives, in each of the five ways to publish one."""

import inspect
import re
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints
from uuid import UUID

import pytest
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, OutboxResponse, TestOutboxBroker, make_outbox_table
from faststream_outbox._internal.broker.response import (
    DEFAULTS,
    MessageOptions,
    OutboxPublishCommand,
    destination_of,
)
from faststream_outbox._internal.memory.tables import MemoryRow
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox.annotations import OutboxMessage
from faststream_outbox.errors import DuplicateMessage, InvalidMessage
from faststream_outbox.log import make_log_tables
from faststream_outbox.testing import fake_session, fake_sync_session
from tests.cases import each

Options = dict[str, Any]
Publish = Callable[[], Awaitable[Any]]
MESSAGE_ID = UUID(int=7)
SOME_DAY = datetime(2200, 1, 1, tzinfo=UTC)


def make_broker() -> OutboxBroker:
    metadata = MetaData()
    log_tables = make_log_tables(metadata, "outbox_log")
    return OutboxBroker(outbox_table=make_outbox_table(metadata), dlq_table=None, log_tables=log_tables, logger=None)


def by_publish(broker: OutboxBroker, body: int, where: Options, options: Options) -> Publish:
    return lambda: broker.publish(body, **where, **options, session=fake_session())


def by_publish_batch(broker: OutboxBroker, body: int, where: Options, options: Options) -> Publish:
    given = {**options}
    if "message_id" in given:
        given["message_ids"] = [given.pop("message_id")]
    return lambda: broker.publish_batch(body, **where, **given, session=fake_session())


def by_publish_sync(broker: OutboxBroker, body: int, where: Options, options: Options) -> Publish:
    async def publish() -> None:
        broker.publish_sync(body, **where, **options, session=fake_sync_session())

    return publish


def by_publisher(broker: OutboxBroker, body: int, where: Options, options: Options) -> Publish:
    # Made when it is called: one that is there when the test broker starts is given somebody who reads its queue.
    return lambda: broker.publisher(**where).publish(body, **options, session=fake_session())


def by_response(broker: OutboxBroker, body: int, where: Options, options: Options) -> Publish:
    @broker.subscriber("asked")
    async def handle(asked: int) -> OutboxResponse:
        return OutboxResponse(asked, **where, **options)

    return lambda: broker.publish(body, "asked", session=fake_session())


WAYS = [by_publish, by_publish_batch, by_publish_sync, by_publisher, by_response]
QUEUE: Options = {"queue": "orders"}
TOPIC: Options = {"topic": "shop"}
TIMER: Options = {"timer_id": "t"}

SAID: dict[str, tuple[Options, Callable[[MemoryRow], bool]]] = {
    "headers": ({"headers": {"a": "1"}}, lambda row: (row.headers or {})["a"] == "1"),
    "correlation_id": ({"correlation_id": "mine"}, lambda row: (row.headers or {})["correlation_id"] == "mine"),
    "key": ({"key": "k"}, lambda row: row.key == "k"),
    "activate_in": (
        {"activate_in": timedelta(hours=1)},
        lambda row: row.next_attempt_at - row.created_at >= timedelta(hours=1),
    ),
    "activate_at": ({"activate_at": SOME_DAY}, lambda row: row.next_attempt_at == SOME_DAY),
    "timer_id": (TIMER, lambda row: row.timer_id == "t"),
    "timer_conflict": ({**TIMER, "timer_conflict": "replace"}, lambda row: row.payload == b"2"),
    "message_id": ({"message_id": MESSAGE_ID}, lambda row: row.message_id == MESSAGE_ID),
}
OF_ONE_MESSAGE = ("timer_id", "timer_conflict")
"""What a batch does not take: it would name every message."""


@pytest.mark.parametrize("way", WAYS)
async def test_option_reaches_its_column_or_header(way: Callable[..., Publish]) -> None:
    for name, (options, is_there) in SAID.items():
        if way is by_publish_batch and name in OF_ONE_MESSAGE:
            continue
        broker = make_broker()
        publish = way(broker, 2, QUEUE, options)
        async with TestOutboxBroker(broker) as tested:
            if name == "timer_conflict":
                await tested.publish(1, **QUEUE, **TIMER, session=fake_session())
            await publish()
            rows = [row for row in broker.fake_client.rows if row.queue == "orders"]  # type: ignore[attr-defined]
        assert [is_there(row) for row in rows] == [True], name


@pytest.mark.parametrize("way", WAYS)
async def test_duplicate_of_a_topic_is_refused_or_left_out(way: Callable[..., Publish]) -> None:
    for on_duplicate, refused in (("error", pytest.raises(DuplicateMessage)), ("ignore", nullcontext())):
        broker = make_broker()
        publish = way(broker, 2, TOPIC, {"message_id": MESSAGE_ID, "on_duplicate": on_duplicate})
        async with TestOutboxBroker(broker) as tested:
            await tested.publish(1, **TOPIC, message_id=MESSAGE_ID, session=fake_session())
            with refused:
                await publish()
            assert len(broker.fake_client.log.rows) == 1  # type: ignore[attr-defined]


def test_every_option_is_tried() -> None:
    assert {*SAID, "on_duplicate"} == {*DEFAULTS}


def test_options_of_a_message_are_those_of_publish() -> None:
    assert {*DEFAULTS} == {*get_type_hints(MessageOptions)}
    parameters = inspect.signature(OutboxBroker.publish).parameters
    assert get_type_hints(MessageOptions) == {name: parameters[name].annotation for name in DEFAULTS}
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS


async def test_unknown_option_is_refused_by_the_name_of_the_call() -> None:
    broker = make_broker()
    publisher = broker.publisher("orders")
    unknown: Options = {"keey": "k"}
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("publish_sync", lambda: broker.publish_sync(1, "orders", session=fake_sync_session(), **unknown)),
        ("OutboxPublishCommand", lambda: OutboxPublishCommand(1, queue="orders", **unknown)),
        ("OutboxResponse", lambda: OutboxResponse(1, queue="orders", **unknown)),
        ("publish", lambda: publisher.publish(1, session=fake_session(), **unknown)),
    ]
    async with TestOutboxBroker(broker):
        for name, call in calls:
            with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'keey'$"):
                await call()


async def test_priority_of_a_call_stands_before_its_publishers_and_that_of_a_response_does_not() -> None:
    broker = make_broker()
    publisher = broker.publisher("orders", priority=5)
    seen: dict[int, int] = {}

    @broker.subscriber("orders")
    async def see(body: int, message: OutboxMessage) -> None:
        assert isinstance(message.raw_message, Claim)
        seen[body] = message.raw_message.priority

    @publisher
    @broker.subscriber("asked")
    async def handle(asked: int) -> OutboxResponse:
        return OutboxResponse(asked, priority=0)

    async with TestOutboxBroker(broker) as tested:
        await publisher.publish(1, priority=0, session=fake_session())
        await publisher.publish(2, session=fake_session())
        await tested.publish(3, "asked", session=fake_session())
    assert seen == {1: 0, 2: 5, 3: 5}


def test_options_of_a_caller_stay_as_they_are() -> None:
    headers = {"a": "1"}
    response = OutboxResponse(1, queue="orders", headers=headers, key="k")
    command = response.as_publish_command()
    assert command.headers is not None
    command.headers["b"] = "2"
    assert (response.headers, headers) == ({"a": "1"}, {"a": "1"})
    assert (DEFAULTS["key"], command.key) == (None, "k")


def test_response_that_was_published_leaves_its_own_place_and_id_behind() -> None:
    given: Options = {"queue": "orders", "session": fake_session(), "message_id": MESSAGE_ID, "key": "k"}
    response = OutboxResponse(1, **given, priority=3)
    first = response.as_publish_command()
    response.is_published = True
    second = response.as_publish_command()
    told = [(cmd.destination, cmd.session, cmd.message_id, cmd.is_response) for cmd in (first, second)]
    assert told == [("orders", given["session"], MESSAGE_ID, True), ("", None, None, False)]
    assert (second.key, second.priority) == ("k", 3)


@each(
    ("queue", "topic", "is_needed", "destination"),
    [
        ("orders", None, True, ("orders", False)),
        ("", "shop", True, ("shop", True)),
        ("", None, False, ("", False)),
        ("", "", True, ("", True)),
        ("orders", "", False, ("", True)),
        ("", None, True, "Say where to: queue='orders' for one worker"),
        ("orders", "shop", False, "to the queue 'orders' or to the topic 'shop', not to both"),
    ],
)
def test_where_a_message_goes(queue: str, topic: str | None, is_needed: bool, destination: Any) -> None:
    if isinstance(destination, str):
        with pytest.raises(InvalidMessage, match=re.escape(destination)):
            destination_of(queue, topic, is_needed=is_needed)
    else:
        assert destination_of(queue, topic, is_needed=is_needed) == destination

"""Mistakes of a first day: each is refused where it is made, with what to write instead."""

from typing import Any

import pytest
from faststream.exceptions import IncorrectState
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import (
    OutboxBroker,
    OutboxResponse,
    OutboxRoute,
    OutboxRouter,
    TestOutboxBroker,
    errors,
    make_dlq_table,
    make_outbox_table,
)
from faststream_outbox._internal.broker import producer
from faststream_outbox.annotations import OutboxSession
from faststream_outbox.errors import (
    InvalidMessage,
    InvalidMessageType,
    InvalidOption,
    InvalidOptionType,
    SessionRequired,
)
from faststream_outbox.log import make_log_tables
from faststream_outbox.queue import DeadLetters
from faststream_outbox.testing import fake_session
from tests.cases import each

metadata = MetaData()
OUTBOX, DEAD = make_outbox_table(metadata), make_dlq_table(metadata)


@pytest.fixture
def broker() -> OutboxBroker:
    engine = create_async_engine("postgresql+asyncpg://localhost/app")
    return OutboxBroker(engine, outbox_table=OUTBOX, dlq_table=DEAD, logger=None)


HEADERS: Any = pytest.mark.parametrize("headers", [["a"], [("a", "b")], "a", {1: "b"}])


@HEADERS
async def test_headers_that_are_none_are_refused(broker: OutboxBroker, headers: Any) -> None:
    session = fake_session()
    with pytest.raises(InvalidMessageType, match=r"[Hh]eader"):
        await broker.publish(1, "orders", session=session, headers=headers)
    with pytest.raises(InvalidMessageType, match=r"[Hh]eader"):
        await broker.publish_batch(1, 2, queue="orders", session=session, headers=headers)
    with pytest.raises(InvalidMessageType, match=r"[Hh]eader"):
        await broker.publisher("orders").publish(1, session=session, headers=headers)


@HEADERS
def test_headers_of_a_publisher_that_are_none_are_refused(broker: OutboxBroker, headers: Any) -> None:
    with pytest.raises(InvalidMessageType, match=r"[Hh]eader"):
        broker.publisher("orders", headers=headers)


@HEADERS
def test_headers_of_a_response_that_are_none_are_refused(headers: Any) -> None:
    with pytest.raises(InvalidMessageType, match=r"[Hh]eader"):
        OutboxResponse(1, queue="orders", headers=headers)


async def test_publish_to_nowhere_is_refused(broker: OutboxBroker) -> None:
    with pytest.raises(InvalidMessage, match=r"queue='orders'.*topic='shop'"):
        await broker.publish(1, session=fake_session())


async def test_batch_with_a_queue_for_a_message_is_told_of_the_keyword(broker: OutboxBroker) -> None:
    with pytest.raises(InvalidMessage, match=r"queue='orders'.*topic='shop'"):
        await broker.publish_batch(1, 2, "orders", session=fake_session())


def test_publish_sync_to_nowhere_is_refused(broker: OutboxBroker) -> None:
    with pytest.raises(InvalidMessage, match=r"queue='orders'.*topic='shop'"):
        broker.publish_sync(1, session=fake_session())


def test_publisher_to_nowhere_is_refused(broker: OutboxBroker) -> None:
    with pytest.raises(InvalidMessage, match=r"queue='orders'.*topic='shop'"):
        broker.publisher()


@pytest.mark.parametrize("queues", [(), [], ""])
def test_subscriber_of_nothing_is_refused(broker: OutboxBroker, queues: Any) -> None:
    with pytest.raises(InvalidOption, match=r"subscriber\('orders'\).*subscriber\(topic='shop', group='billing'\)"):
        broker.subscriber(queues)


def test_route_of_nothing_is_refused() -> None:
    async def handle(body: int) -> None: ...

    with pytest.raises(InvalidOption, match=r"subscriber\('orders'\)"):
        OutboxRouter([OutboxRoute(handle)])


@each("options", [{"batch_size": 3}, {"batch_wait": 0.5}])
@each("place", [{"queues": "orders"}, {"topic": "shop", "group": "billing"}])
def test_options_of_a_batch_without_batch_are_refused(options: dict[str, Any], place: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidOption, match=f"{name} .*batch=True"):
        OutboxRouter().subscriber(**place, **options)


def test_topic_of_a_broker_without_a_log_is_refused_where_it_is_registered(broker: OutboxBroker) -> None:
    with pytest.raises(IncorrectState, match="log_tables=make_log_tables"):
        broker.subscriber(topic="shop", group="billing")
    with pytest.raises(IncorrectState, match="log_tables=make_log_tables"):
        broker.publisher(topic="shop")


def test_error_of_a_missing_session_is_where_errors_are_and_where_it_was() -> None:
    assert errors.SessionRequired is producer.SessionRequired


async def test_ping_of_a_broker_without_an_engine_says_no() -> None:
    assert not await OutboxBroker(outbox_table=OUTBOX, dlq_table=DEAD).ping(timeout=1)


def test_session_of_a_handler_without_a_transaction_is_refused_where_it_is_registered(broker: OutboxBroker) -> None:
    with pytest.raises(InvalidOption, match=r"write.*session.*transactional=True"):

        @broker.subscriber("orders")
        async def write(body: int, session: OutboxSession) -> None: ...


def test_session_of_a_handler_that_can_do_without_is_taken(broker: OutboxBroker) -> None:
    @broker.subscriber("orders")
    async def write(body: int, session: OutboxSession = None) -> None: ...  # type: ignore[assignment]

    @broker.subscriber("letters", transactional=True)
    async def write_both(body: int, session: OutboxSession) -> None: ...


async def test_missing_session_names_all_ways_to_have_one(broker: OutboxBroker) -> None:
    with pytest.raises(SessionRequired, match=r"session=session.*transactional=True.*autocommit=True"):
        await broker.publish(1, "orders")


async def test_missing_session_of_a_test_names_the_one_for_tests(broker: OutboxBroker) -> None:
    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(SessionRequired, match=r"session=fake_session\(\)"):
            await tested.publish(1, "orders")


async def test_key_and_keys_of_a_batch_are_refused(broker: OutboxBroker) -> None:
    with pytest.raises(InvalidMessage, match="key or keys, not both"):
        await broker.publish_batch(1, 2, queue="orders", session=fake_session(), key="a", keys=["b", "c"])


def test_broker_in_the_place_of_its_client_is_refused(broker: OutboxBroker) -> None:
    given: Any = broker
    with pytest.raises(InvalidOptionType, match=r"DeadLetters\(broker.client\)"):
        DeadLetters(given)


@pytest.mark.parametrize("make", [make_outbox_table, make_dlq_table, make_log_tables])
def test_name_in_the_place_of_the_metadata_is_refused(make: Any) -> None:
    with pytest.raises(InvalidOptionType, match=rf"{make.__name__}\(metadata, 'orders'\)"):
        make("orders")

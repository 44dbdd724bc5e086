"""Mistakes of a first day: each is refused where it is made, with what to write instead."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from faststream.exceptions import FeatureNotSupportedException, IncorrectState
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import (
    OutboxBroker,
    OutboxResponse,
    OutboxRoute,
    OutboxRouter,
    TestOutboxBroker,
    make_dlq_table,
    make_outbox_table,
)
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
SESSION = {"session": fake_session()}
PLACES: list[dict[str, Any]] = [{"queues": "orders"}, {"topic": "shop", "group": "billing"}]


@pytest.fixture
def broker() -> OutboxBroker:
    engine = create_async_engine("postgresql+asyncpg://localhost/app")
    return OutboxBroker(engine, outbox_table=OUTBOX, dlq_table=DEAD, logger=None)


async def write(body: int, session: OutboxSession) -> None: ...


async def write_if_it_can(body: int, session: OutboxSession = None) -> None: ...  # type: ignore[assignment]


NOWHERE = (InvalidMessage, r"queue='orders'.*topic='shop'")
NOTHING = (InvalidOption, r"subscriber\('orders'\).*subscriber\(topic='shop', group='billing'\)")
BY_HAND = (FeatureNotSupportedException, "fetch_unprocessed")
NO_LOG = (IncorrectState, "log_tables=make_log_tables")
MISTAKES: dict[str, tuple[Callable[[Any], Any], tuple[type[Exception], str]]] = {
    "publish to nowhere": (lambda broker: broker.publish(1, **SESSION), NOWHERE),
    "batch whose last message is a queue": (lambda broker: broker.publish_batch(1, 2, "orders", **SESSION), NOWHERE),
    "publish_sync to nowhere": (lambda broker: broker.publish_sync(1, **SESSION), NOWHERE),
    "publisher to nowhere": (lambda broker: broker.publisher(), NOWHERE),
    "subscriber of ()": (lambda broker: broker.subscriber(()), NOTHING),
    "subscriber of []": (lambda broker: broker.subscriber([]), NOTHING),
    "subscriber of no name": (lambda broker: broker.subscriber(""), NOTHING),
    "route of nothing": (lambda broker: OutboxRouter([OutboxRoute(write)]), NOTHING),
    "queue named twice": (lambda broker: broker.subscriber(["orders", "orders"]), (InvalidOption, "twice")),
    "topic without a log": (lambda broker: broker.subscriber(topic="shop", group="billing"), NO_LOG),
    "publisher to a topic without a log": (lambda broker: broker.publisher(topic="shop"), NO_LOG),
    "session without a transaction": (
        lambda broker: broker.subscriber("orders")(write),
        (InvalidOption, r"write.*session.*transactional=True"),
    ),
    "no session": (
        lambda broker: broker.publish(1, "orders"),
        (SessionRequired, r"publish\(body, queue=…, session=session\).*transactional=True.*autocommit=True"),
    ),
    "no engine": (
        lambda broker: OutboxBroker(outbox_table=OUTBOX, dlq_table=DEAD).start(),
        (IncorrectState, r"OutboxBroker\(engine, outbox_table=…\)"),
    ),
    "message taken by hand": (lambda broker: broker.subscriber("orders").get_one(), BY_HAND),
    "messages iterated over": (lambda broker: aiter(broker.subscriber("orders")), BY_HAND),
    "key and keys": (
        lambda broker: broker.publish_batch(1, 2, queue="orders", key="a", keys=["b", "c"], **SESSION),
        (InvalidMessage, "key or keys, not both"),
    ),
    "broker for its client": (DeadLetters, (InvalidOptionType, r"DeadLetters\(broker.client\)")),
    "response with an id and no place": (
        lambda broker: OutboxResponse(1, message_id="7f2c1c5e-6f1a-4b52-9d6a-2f6c1a0b9e11"),
        (InvalidMessage, "queue or a topic of its own"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_mistake_is_refused_where_it_is_made(broker: OutboxBroker, mistake: str) -> None:
    make, (error, said) = MISTAKES[mistake]
    with pytest.raises(error, match=said):
        await _made(make(broker))


async def _made(answer: Any) -> None:
    if inspect.isawaitable(answer):
        await answer


@pytest.mark.parametrize("headers", [["a"], [("a", "b")], "a", {1: "b"}])
@pytest.mark.parametrize(
    "make",
    [
        lambda broker, headers: broker.publish(1, "orders", headers=headers, **SESSION),
        lambda broker, headers: broker.publish_batch(1, 2, queue="orders", headers=headers, **SESSION),
        lambda broker, headers: broker.publisher("orders").publish(1, headers=headers, **SESSION),
        lambda broker, headers: broker.publisher("orders", headers=headers),
        lambda broker, headers: OutboxResponse(1, queue="orders", headers=headers),
    ],
    ids=["publish", "publish_batch", "publisher.publish", "publisher", "OutboxResponse"],
)
async def test_headers_that_are_none_are_refused(broker: OutboxBroker, make: Any, headers: Any) -> None:
    with pytest.raises(InvalidMessageType, match=r"[Hh]eader"):
        await _made(make(broker, headers))


@each("options", [{"batch_size": 3}, {"batch_wait": 0.5}])
@each("place", PLACES)
def test_options_of_a_batch_without_batch_are_refused(options: dict[str, Any], place: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidOption, match=f"{name} .*batch=True"):
        OutboxRouter().subscriber(**place, **options)


@each("make", [make_outbox_table, make_dlq_table, make_log_tables])
def test_name_in_the_place_of_the_metadata_is_refused(make: Any) -> None:
    with pytest.raises(InvalidOptionType, match=rf"{make.__name__}\(metadata, 'orders'\)"):
        make("orders")


async def test_ping_of_a_broker_without_an_engine_says_no() -> None:
    assert not await OutboxBroker(outbox_table=OUTBOX, dlq_table=DEAD).ping(timeout=1)


def test_session_of_a_handler_that_can_do_without_is_taken(broker: OutboxBroker) -> None:
    broker.subscriber("orders")(write_if_it_can)
    broker.subscriber("letters", transactional=True)(write)


async def test_missing_session_of_a_test_names_the_one_for_tests(broker: OutboxBroker) -> None:
    async with TestOutboxBroker(broker) as tested:
        with pytest.raises(SessionRequired, match=r"session=fake_session\(\)"):
            await tested.publish(1, "orders")

"""Subscribers: bodies, annotated parameters, options with their defaults, and looking without leasing."""

import asyncio
import inspect
import warnings
from collections.abc import AsyncIterator
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import FeatureNotSupportedException
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from faststream_outbox import OutboxBroker, annotations
from faststream_outbox.broker import OutboxMessage, OutboxProducer
from faststream_outbox.events import Claimed
from faststream_outbox.queue import OutboxClient
from tests.contract.outside import Outside
from tests.contract.running import run
from tests.waiting import eventually

BASIC = """\
from faststream import FastStream
from faststream_outbox import OutboxBroker

broker: OutboxBroker = ...
app = FastStream(broker)


@broker.subscriber("orders")
async def handle(order_id: int) -> None:
    print(f"order {order_id}")
"""

BODY_TYPES = """\
from dataclasses import dataclass


@dataclass
class Order:
    order_id: str
    amount: float


@broker.subscriber("orders")
async def handle(body: Order) -> None:
    print(f"order {body.order_id} for {body.amount}")
"""

ANNOTATED = """\
from faststream_outbox.annotations import OutboxBroker, OutboxMessage


@broker.subscriber("orders")
async def handle(msg: OutboxMessage, broker: OutboxBroker) -> None: ...
"""

OPTIONS = """\
@broker.subscriber(
    "high-priority",
    max_workers=8,
    fetch_batch_size=50,
    min_fetch_interval=0.1,
    max_fetch_interval=1.0,
    lease_ttl_seconds=120.0,
)
async def handle_urgent(body: dict) -> None: ...
"""

SLOW_AND_FAST = """\
@broker.subscriber("slow_q", lease_ttl_seconds=600)   # 10 minutes
async def heavy_job(msg): ...


@broker.subscriber("fast_q", lease_ttl_seconds=30)
async def quick_job(msg): ...
"""


async def publish(broker: OutboxBroker, session: AsyncSession, *bodies: Any, queue: str = "orders") -> None:
    async with session.begin():
        await broker.publish_batch(*bodies, queue=queue, session=session)


async def test_basic_example_handles(broker: OutboxBroker, session: AsyncSession, outside: Outside) -> None:
    printed: list[str] = []
    # The ellipsis stands for a broker of the application's.
    known = await run(BASIC.replace("= ...", "= given"), {"given": broker, "print": printed.append})
    await known["app"].start()
    await publish(broker, session, 1)
    await eventually(outside.is_empty)
    assert printed == ["order 1"]


async def test_a_body_becomes_the_annotated_type(broker: OutboxBroker, session: AsyncSession, outside: Outside) -> None:
    printed: list[str] = []
    await run(BODY_TYPES, {"broker": broker, "print": printed.append})
    await broker.start()
    await publish(broker, session, {"order_id": "a", "amount": 2.5})
    await eventually(outside.is_empty)
    assert printed == ["order a for 2.5"]


@pytest.mark.parametrize("body", [1, 1.5, "text", True, [1, "two"], {"a": {"b": [1]}}], ids=repr)
async def test_what_json_holds_arrives_as_it_was_published(
    broker: OutboxBroker, session: AsyncSession, outside: Outside, body: Any
) -> None:
    arrived: list[Any] = []

    @broker.subscriber("orders")
    async def handle(body: Any) -> None:
        arrived.append(body)

    await broker.start()
    await publish(broker, session, body)
    await eventually(outside.is_empty)
    assert arrived == [body]


async def test_annotated_example_is_given_the_message_and_the_broker(
    broker: OutboxBroker, session: AsyncSession, outside: Outside
) -> None:
    given: list[Any] = []
    # The printed handler ignores its arguments; this one keeps them.
    code = ANNOTATED.replace("None: ...", "None: given.extend((msg, broker))")
    await run(code, {"broker": broker, "given": given})
    await broker.start()
    await publish(broker, session, 1)
    await eventually(outside.is_empty)
    message, reported = given
    assert isinstance(message, OutboxMessage)
    assert reported is broker


async def test_annotated_example_runs_as_it_is_printed(
    broker: OutboxBroker, session: AsyncSession, outside: Outside
) -> None:
    await run(ANNOTATED, {"broker": broker})
    await broker.start()
    await publish(broker, session, 1)
    await eventually(outside.is_empty)


async def test_producer_and_client_are_available_too(
    broker: OutboxBroker, session: AsyncSession, outside: Outside
) -> None:
    given: list[Any] = []

    @broker.subscriber("orders")
    async def handle(body: int, producer: annotations.OutboxProducer, client: annotations.OutboxClient) -> None:
        given.extend((producer, client))

    await broker.start()
    await publish(broker, session, 1)
    await eventually(outside.is_empty)
    producer, client = given
    assert isinstance(producer, OutboxProducer)
    assert isinstance(client, OutboxClient)
    assert client is broker.client


def test_fastapi_has_the_same_names() -> None:
    fastapi = pytest.importorskip("faststream_outbox.fastapi")
    for name in ("OutboxMessage", "OutboxBroker", "OutboxProducer", "OutboxClient"):
        assert hasattr(fastapi, name)


def test_defaults_of_the_signature_are_the_documented_ones() -> None:
    parameters = inspect.signature(OutboxBroker.subscriber).parameters
    documented = {
        "max_workers": 1,
        "fetch_batch_size": 10,
        "min_fetch_interval": 1.0,
        "max_fetch_interval": 10.0,
        "lease_ttl_seconds": 60.0,
        "max_deliveries": None,
    }
    assert {name: parameters[name].default for name in documented} == documented


def test_defaults_reach_the_engine(broker: OutboxBroker) -> None:
    subscriber = broker.subscriber("orders")
    options = subscriber.options
    assert (options.max_workers, options.fetch_batch_size, options.max_deliveries) == (1, 10, None)
    assert (options.min_fetch_interval, options.max_fetch_interval, options.lease_ttl_seconds) == (1.0, 10.0, 60.0)
    assert subscriber.ack_policy is AckPolicy.NACK_ON_ERROR


async def test_options_example_is_taken_without_a_warning(broker: OutboxBroker) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await run(OPTIONS, {"broker": broker})
    options = broker.subscribers[0].options  # type: ignore[attr-defined]
    assert (options.max_workers, options.fetch_batch_size, options.lease_ttl_seconds) == (8, 50, 120.0)
    assert (options.min_fetch_interval, options.max_fetch_interval) == (0.1, 1.0)


async def test_options_example_handles(broker: OutboxBroker, session: AsyncSession, outside: Outside) -> None:
    await run(OPTIONS, {"broker": broker})
    await broker.start()
    await publish(broker, session, *({"n": n} for n in range(60)), queue="high-priority")
    await eventually(outside.is_empty)


async def most_at_once(broker: OutboxBroker, session: AsyncSession, outside: Outside, **options: Any) -> int:
    running, most = 0, 0

    @broker.subscriber("orders", **options)
    async def handle(body: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    await publish(broker, session, *range(12))
    await broker.start()
    await eventually(outside.is_empty)
    return most


async def test_one_handler_runs_at_a_time_by_default(
    broker: OutboxBroker, session: AsyncSession, outside: Outside
) -> None:
    assert await most_at_once(broker, session, outside) == 1


async def test_max_workers_handlers_run_at_a_time(
    broker: OutboxBroker, session: AsyncSession, outside: Outside
) -> None:
    assert await most_at_once(broker, session, outside, max_workers=4) == 4


@pytest.mark.parametrize(("options", "most"), [({}, 10), ({"fetch_batch_size": 3}, 3)], ids=["default", "three"])
async def test_a_fetch_claims_no_more_than_its_batch(
    broker: OutboxBroker, session: AsyncSession, outside: Outside, options: dict[str, Any], most: int
) -> None:
    counts: list[int] = []
    broker.client.events.subscribe(lambda event: counts.append(event.count), Claimed)

    @broker.subscriber("orders", **options)
    async def handle(body: int) -> None: ...

    await publish(broker, session, *range(45))
    await broker.start()
    await eventually(outside.is_empty)
    assert 1 < max(counts) <= most


async def test_slow_and_fast_queues_have_leases_of_their_own(
    broker: OutboxBroker, session: AsyncSession, outside: Outside
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await run(SLOW_AND_FAST, {"broker": broker})
    # Both were claimed a minute ago by a worker that is gone: only the fast queue's lease has run out.
    slow = outside.put(queue="slow_q")
    fast = outside.put(queue="fast_q")
    outside.lease(seconds_ago=60)
    await broker.start()
    await eventually(lambda: fast not in [row["id"] for row in outside.rows()])
    assert [row["id"] for row in outside.rows()] == [slow]


async def test_slow_and_fast_queues_are_handled_by_their_own_handlers(
    broker: OutboxBroker, session: AsyncSession, outside: Outside
) -> None:
    printed: list[Any] = []
    code = SLOW_AND_FAST.replace("heavy_job(msg): ...", "heavy_job(msg): printed.append(('slow', msg))")
    code = code.replace("quick_job(msg): ...", "quick_job(msg): printed.append(('fast', msg))")
    await run(code, {"broker": broker, "printed": printed})
    await broker.start()
    await publish(broker, session, 1, queue="slow_q")
    await publish(broker, session, 2, queue="fast_q")
    await eventually(outside.is_empty)
    assert sorted(printed) == [("fast", 2), ("slow", 1)]


async def test_get_one_is_refused_and_says_what_to_use(broker: OutboxBroker) -> None:
    subscriber = broker.subscriber("orders")
    with pytest.raises(FeatureNotSupportedException, match="fetch_unprocessed"):
        await subscriber.get_one()


async def test_iteration_is_refused_and_says_what_to_use(broker: OutboxBroker) -> None:
    subscriber = broker.subscriber("orders")
    with pytest.raises(FeatureNotSupportedException, match="fetch_unprocessed"):
        async for _ in subscriber:
            pass


async def test_fetch_unprocessed_shows_the_queue_and_leases_nothing(
    broker: OutboxBroker, session: AsyncSession, outside: Outside
) -> None:
    await publish(broker, session, 1, 2)
    await publish(broker, session, 3, queue="other")
    before = outside.rows()
    async with session.begin():
        shown = await broker.fetch_unprocessed(session=session, queue="orders")
    assert [message.payload for message in shown] == [b"1", b"2"]
    assert outside.rows() == before
    assert {(row["deliveries_count"], row["acquired_token"]) for row in before} == {(0, None)}


@pytest.fixture
async def frugal(database_url: URL, table: Table) -> AsyncIterator[OutboxBroker]:
    """A broker on a pool of a single connection."""
    settings = {"application_name": "frugal"}
    engine = create_async_engine(
        database_url, pool_size=1, max_overflow=0, pool_timeout=2.0, connect_args={"server_settings": settings}
    )
    broker = OutboxBroker(engine, outbox_table=table)
    yield broker
    await broker.stop()
    await engine.dispose()


async def test_subscribers_take_nothing_from_the_pool_and_few_connections_in_all(
    frugal: OutboxBroker, outside: Outside
) -> None:
    for number in range(5):

        @frugal.subscriber(f"queue-{number}", max_workers=8)
        async def handle(body: int) -> None: ...

        outside.put(queue=f"queue-{number}")
    await frugal.start()
    await eventually(outside.is_empty)
    (count,) = outside.sql("select count(*) from pg_stat_activity where right(application_name, 6) = 'frugal'")
    assert count["count"] <= 4
    assert frugal.client.engine.pool.checkedout() == 0  # type: ignore[attr-defined]

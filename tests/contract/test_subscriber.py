"""Subscribers: bodies, annotated parameters, options with their defaults, and looking without leasing."""

import asyncio
import inspect
import warnings
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import FeatureNotSupportedException
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import OutboxBroker, annotations
from faststream_outbox.broker import OutboxMessage, OutboxProducer
from faststream_outbox.events import Claimed
from faststream_outbox.queue import OutboxClient
from tests.contract.outside import App
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


async def test_basic_example_handles(app: App) -> None:
    printed: list[str] = []
    # The ellipsis stands for a broker of the application's.
    known = await run(BASIC.replace("= ...", "= given"), {"given": app.broker, "print": printed.append})
    await known["app"].start()
    await app.publish(1)
    await eventually(app.is_empty)
    assert printed == ["order 1"]


async def test_a_body_becomes_the_annotated_type(app: App) -> None:
    printed: list[str] = []
    await run(BODY_TYPES, {"broker": app.broker, "print": printed.append})
    await app.finishes({"order_id": "a", "amount": 2.5})
    assert printed == ["order a for 2.5"]


async def test_what_json_holds_arrives_as_it_was_published(app: App) -> None:
    bodies = [1, 1.5, "text", True, [1, "two"], {"a": {"b": [1]}}]
    arrived = app.collects()
    await app.finishes(*bodies)
    assert list(map(repr, arrived)) == list(map(repr, bodies))


async def test_annotated_example_is_given_the_message_and_the_broker(app: App) -> None:
    given: list[Any] = []
    # The printed handler ignores its arguments; this one keeps them.
    code = ANNOTATED.replace("None: ...", "None: given.extend((msg, broker))")
    await run(code, {"broker": app.broker, "given": given})
    await app.finishes(1)
    message, reported = given
    assert isinstance(message, OutboxMessage)
    assert reported is app.broker


async def test_annotated_example_runs_as_it_is_printed(app: App) -> None:
    await run(ANNOTATED, {"broker": app.broker})
    await app.finishes(1)


async def test_producer_and_client_are_available_too(app: App) -> None:
    given: list[Any] = []

    @app.broker.subscriber("orders")
    async def handle(body: int, producer: annotations.OutboxProducer, client: annotations.OutboxClient) -> None:
        given.extend((producer, client))

    await app.finishes(1)
    producer, client = given
    assert isinstance(producer, OutboxProducer)
    assert isinstance(client, OutboxClient)
    assert client is app.broker.client


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


def test_defaults_reach_the_engine(unconnected: OutboxBroker) -> None:
    subscriber = unconnected.subscriber("orders")
    options = subscriber.options
    assert (options.max_workers, options.fetch_batch_size, options.max_deliveries) == (1, 10, None)
    assert (options.min_fetch_interval, options.max_fetch_interval, options.lease_ttl_seconds) == (1.0, 10.0, 60.0)
    assert subscriber.ack_policy is AckPolicy.NACK_ON_ERROR


async def test_options_example_is_taken_without_a_warning(unconnected: OutboxBroker) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await run(OPTIONS, {"broker": unconnected})
    options = unconnected.subscribers[0].options  # type: ignore[attr-defined]
    assert (options.max_workers, options.fetch_batch_size, options.lease_ttl_seconds) == (8, 50, 120.0)
    assert (options.min_fetch_interval, options.max_fetch_interval) == (0.1, 1.0)


async def test_options_example_handles(app: App) -> None:
    await run(OPTIONS, {"broker": app.broker})
    await app.finishes(*({"n": n} for n in range(60)), queue="high-priority")


async def most_at_once(app: App, **options: Any) -> int:
    running, most = 0, 0

    @app.broker.subscriber("orders", **options)
    async def handle(body: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1

    await app.publish(*range(12))
    await app.finishes()
    return most


async def test_one_handler_runs_at_a_time_by_default(app: App) -> None:
    assert await most_at_once(app) == 1


async def test_max_workers_handlers_run_at_a_time(app: App) -> None:
    assert await most_at_once(app, max_workers=4) == 4


@pytest.mark.parametrize(("options", "most"), [({}, 10), ({"fetch_batch_size": 3}, 3)], ids=["default", "three"])
async def test_a_fetch_claims_no_more_than_its_batch(app: App, options: dict[str, Any], most: int) -> None:
    counts: list[int] = []
    app.broker.client.events.subscribe(lambda event: counts.append(event.count), Claimed)
    app.collects(**options)
    await app.publish(*range(45))
    await app.finishes()
    assert 1 < max(counts) <= most


async def test_slow_and_fast_queues_have_leases_of_their_own(app: App) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await run(SLOW_AND_FAST, {"broker": app.broker})
    # Both were claimed a minute ago by a worker that is gone: only the fast queue's lease has run out.
    slow = app.put(queue="slow_q")
    fast = app.put(queue="fast_q")
    app.lease(seconds_ago=60)
    await app.broker.start()
    await eventually(lambda: fast not in [row["id"] for row in app.rows()])
    assert [row["id"] for row in app.rows()] == [slow]


async def test_slow_and_fast_queues_are_handled_by_their_own_handlers(app: App) -> None:
    printed: list[Any] = []
    code = SLOW_AND_FAST.replace("heavy_job(msg): ...", "heavy_job(msg): printed.append(('slow', msg))")
    code = code.replace("quick_job(msg): ...", "quick_job(msg): printed.append(('fast', msg))")
    await run(code, {"broker": app.broker, "printed": printed})
    await app.publish(1, queue="slow_q")
    await app.finishes(2, queue="fast_q")
    assert sorted(printed) == [("fast", 2), ("slow", 1)]


async def test_get_one_is_refused_and_says_what_to_use(unconnected: OutboxBroker) -> None:
    subscriber = unconnected.subscriber("orders")
    with pytest.raises(FeatureNotSupportedException, match="fetch_unprocessed"):
        await subscriber.get_one()


async def test_iteration_is_refused_and_says_what_to_use(unconnected: OutboxBroker) -> None:
    subscriber = unconnected.subscriber("orders")
    with pytest.raises(FeatureNotSupportedException, match="fetch_unprocessed"):
        async for _ in subscriber:
            pass


async def test_fetch_unprocessed_shows_the_queue_and_leases_nothing(app: App) -> None:
    await app.publish(1, 2)
    await app.publish(3, queue="other")
    before = app.rows()
    async with app.session.begin():
        shown = await app.broker.fetch_unprocessed(session=app.session, queue="orders")
    assert [message.payload for message in shown] == [b"1", b"2"]
    assert app.rows() == before
    assert {(row["deliveries_count"], row["acquired_token"]) for row in before} == {(0, None)}


async def test_subscribers_take_nothing_from_the_pool_and_few_connections_in_all(app: App, database_url: URL) -> None:
    named = {"server_settings": {"application_name": "frugal"}}
    engine = create_async_engine(database_url, pool_size=1, max_overflow=0, pool_timeout=2.0, connect_args=named)
    app.broker = app.another(engine)
    for number in range(5):

        @app.broker.subscriber(f"queue-{number}", max_workers=8)
        async def handle(body: int) -> None: ...

        app.put(queue=f"queue-{number}")
    await app.finishes()
    (count,) = app.sql("select count(*) from pg_stat_activity where right(application_name, 6) = 'frugal'")
    assert count["count"] <= 4
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    await app.broker.stop()
    await engine.dispose()

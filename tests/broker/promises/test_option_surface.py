"""No option is lost between the places that take the same ones, or between FastStream's brokers and ours."""

import ast
import inspect
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

import pytest
from faststream import AckPolicy
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker, KafkaRouter
from faststream.nats import NatsBroker, NatsRouter
from faststream.rabbit import RabbitBroker, RabbitRouter
from faststream.redis import RedisBroker, RedisRouter
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from typing_extensions import Unpack

from faststream_outbox import (
    ConstantRetry,
    OutboxBroker,
    OutboxPublisher,
    OutboxResponse,
    OutboxRoute,
    OutboxRoutePublisher,
    OutboxRouter,
    TestOutboxBroker,
    make_dlq_table,
    make_outbox_table,
)
from faststream_outbox._internal.broker.options import PublisherOptions, SubscriberOptions
from faststream_outbox._internal.broker.response import DEFAULTS, MessageOptions
from faststream_outbox._internal.log.admin.groups import Groups
from faststream_outbox._internal.log.admin.parked import Parking
from faststream_outbox._internal.log.admin.partitions import Partitions
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.queue import DeadLetters, OutboxClient, Selection, Worker
from faststream_outbox.testing import fake_session
from tests.cases import each

IN_TREE: list[Any] = [KafkaBroker, ConfluentBroker, NatsBroker, RabbitBroker, RedisBroker]
# Redis spreads its arguments over several modules.
WRITTEN_IN_ONE_MODULE: list[Any] = [broker for broker in IN_TREE if broker is not RedisBroker]
Option = tuple[str, Any, Any]


def _options(function: Callable[..., Any], *, leave_out: tuple[str, ...] = ()) -> dict[str, Option]:
    """Names, defaults and kinds of what a function takes; options of a message that it takes whole are its own."""
    options: dict[str, Option] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.annotation == Unpack[MessageOptions]:
            options |= {each: (each, default, parameter.KEYWORD_ONLY) for each, default in DEFAULTS.items()}
        elif name not in ("self", *leave_out):
            options[name] = (name, parameter.default, parameter.kind)
    return options


def _arguments_of_broker(broker: Any) -> set[str]:
    """What a broker's constructor takes, also where its arguments are written as a TypedDict for type checkers."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(broker)))  # type: ignore[arg-type]
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name.endswith("InitKwargs"):
            names |= {item.target.id for item in node.body if isinstance(item, ast.AnnAssign)}  # type: ignore[union-attr]
        if isinstance(node, ast.ClassDef) and node.name == broker.__name__:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    names |= {argument.arg for argument in (*item.args.args, *item.args.kwonlyargs)}
    return names - {"self"}


def _types(function: Callable[..., Any], *leave_out: str) -> dict[str, Any]:
    return {name: kind for name, kind in get_type_hints(function).items() if name not in ("return", *leave_out)}


def test_router_takes_the_options_of_a_brokers_subscriber() -> None:
    assert _options(OutboxRouter.subscriber) == _options(OutboxBroker.subscriber)


def test_options_to_pass_on_are_those_of_the_broker() -> None:
    assert get_type_hints(SubscriberOptions) == _types(OutboxBroker.subscriber, "queues", "dependencies")
    assert get_type_hints(PublisherOptions) == _types(OutboxBroker.publisher, "queue")


def test_route_passes_every_option_on(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: dict[str, Any] = {}

    def subscriber(self: Any, queues: Any, **options: Any) -> Callable[[Any], Any]:
        taken.update(options, queues=queues)
        return lambda call: call

    given = {name: object() for name in _options(OutboxBroker.subscriber)}
    monkeypatch.setattr(OutboxRouter, "subscriber", subscriber)
    OutboxRouter(handlers=[OutboxRoute(lambda: None, **given)])  # type: ignore[arg-type]
    assert taken == given


def test_route_publisher_passes_every_option_on() -> None:
    given = {name: object() for name in _options(OutboxBroker.publisher)}
    kept = OutboxRoutePublisher(**given)  # type: ignore[arg-type]
    assert {"queue": kept.args[0], **kept.kwargs} == given


ROUTERS: list[Any] = [KafkaRouter, NatsRouter, RabbitRouter, RedisRouter]


@each(
    ("theirs", "ours", "known"),
    [
        (
            [_arguments_of_broker(broker) for broker in WRITTEN_IN_ONE_MODULE],
            OutboxBroker.__init__,
            {"graceful_timeout", "middlewares", "ack_policy", "logger", "apply_types", "security"},
        ),
        ([{*_options(broker.subscriber)} for broker in IN_TREE], OutboxBroker.subscriber, {"ack_policy", "no_reply"}),
        ([{*_options(broker.publisher)} for broker in IN_TREE], OutboxBroker.publisher, {"title", "schema"}),
        ([{*_options(router.__init__)} for router in ROUTERS], OutboxRouter.__init__, {"prefix", "handlers"}),
    ],
)
def test_what_all_of_faststreams_take_ours_take_too(
    theirs: list[set[str]], ours: Callable[..., Any], known: set[str]
) -> None:
    shared = set.intersection(*theirs)
    assert known <= shared
    assert shared - {*_options(ours)} == set()


@each(
    ("function", "missing"),
    [
        (OutboxPublisher.publish, {"topic"}),
        # To whom an answer to an answer goes is up to publishers.
        (OutboxResponse.__init__, {"message", "reply_to"}),
        # A timer's name is one message's, and so is an id: message_ids has them.
        (OutboxBroker.publish_batch, {"message", "reply_to", "timer_id", "timer_conflict", "message_id"}),
        (OutboxBroker.publish_sync, set()),
    ],
)
def test_every_way_to_publish_takes_what_the_brokers_publish_takes(
    function: Callable[..., Any], missing: set[str]
) -> None:
    assert {*_options(OutboxBroker.publish)} - {*_options(function)} == missing


def test_constructor_of_earlier_releases_can_be_called() -> None:
    metadata = MetaData()
    broker = OutboxBroker(
        create_async_engine("postgresql+asyncpg://localhost/none"),
        outbox_table=make_outbox_table(metadata, table_name="outbox"),
        dlq_table=make_dlq_table(metadata, table_name="outbox_dlq"),
        decoder=None,
        parser=None,
        dependencies=(),
        middlewares=(),
        graceful_timeout=15.0,
        routers=(),
        metrics_recorder=lambda event, fields: None,
        last_exception_renderer=repr,
        logger=None,
        log_level=logging.INFO,
        apply_types=True,
        description=None,
        tags=(),
    )
    assert broker.client.dlq_table is not None


@pytest.mark.filterwarnings("ignore::faststream_outbox.errors.OutboxWarning")
def test_subscriber_of_earlier_releases_can_be_called() -> None:
    options: dict[str, Any] = {
        "max_workers": 1,
        "retry_strategy": ConstantRetry(delay_seconds=1, jitter_factor=0.0, max_attempts=2, max_total_delay_seconds=9),
        "fetch_batch_size": 10,
        "min_fetch_interval": 1.0,
        "max_fetch_interval": 10.0,
        "lease_ttl_seconds": 60.0,
        "max_deliveries": 3,
        "terminal_flush_batch_size": 5,
        "ack_policy": AckPolicy.NACK_ON_ERROR,
        "propagate_inbound_headers": False,
        "dependencies": (),
        "parser": None,
        "decoder": None,
        "title_": "title",
        "description_": "description",
        "include_in_schema": True,
    }
    broker = OutboxBroker(outbox_table=make_outbox_table(MetaData()))
    subscriber = broker.subscriber(["a", "b"], **options)
    route = OutboxRoute(lambda: None, ["c"], **options)
    assert subscriber.specification.config.title_ == "title"
    assert route.kwargs["title_"] == "title"


async def test_publishing_calls_of_earlier_releases_can_be_made() -> None:
    broker = OutboxBroker(outbox_table=make_outbox_table(MetaData()))
    publisher = broker.publisher(
        "orders", headers={"a": "1"}, title=None, description=None, schema=None, include_in_schema=True
    )
    session: AsyncSession = fake_session()
    timer: dict[str, Any] = {"timer_id": "t", "timer_conflict": "extend", "activate_in": timedelta(1)}
    async with TestOutboxBroker(broker, run_loops=True) as tested:
        assert await tested.publish(
            {"a": 1}, queue="orders", session=session, headers={"b": "2"}, correlation_id="c", **timer
        )
        await publisher.publish({"a": 1}, session=session, headers=None, activate_at=datetime.now(UTC) + timedelta(1))
        await tested.publish_batch(1, 2, queue="orders", session=session, headers=None, activate_in=timedelta(1))
        rows = await tested.fetch_unprocessed(session=session, queue="orders", limit=10)
        assert await tested.cancel_timer(queue="orders", timer_id="t", session=session)
    assert len(rows) == 4


def test_router_of_earlier_releases_can_be_made() -> None:
    router = OutboxRouter(
        (), dependencies=(), middlewares=(), parser=None, decoder=None, include_in_schema=None, routers=()
    )
    broker = OutboxBroker(outbox_table=make_outbox_table(MetaData()))
    broker.include_router(router, prefix="", dependencies=(), middlewares=(), include_in_schema=None)
    assert router in broker.routers


OF_LOG = [
    name
    for name in dir(Outbox)
    if not name.startswith("_") and inspect.isfunction(getattr(Outbox, name)) and _options(getattr(Outbox, name))
]
"""Methods of `Outbox` that take anything."""


def _described(text: str) -> set[str]:
    """Names that a docstring explains: `name: …`, or several before one colon."""
    # Python 3.13 takes the indentation away.
    lines = (re.match(r"\s*([a-z_]+(?:, [a-z_]+)*): \S", line) for line in text.splitlines()[1:])
    return {name for line in lines if line is not None for name in line[1].split(", ")}


OF_BROKER = [
    "subscriber", "publisher", "include_router", "publish", "publish_sync", "publish_batch", "request", "cancel_timer",
    "cancel_timer_sync", "fetch_unprocessed", "ping", "validate_schema", "pause", "resume",
]  # fmt: skip


@each(
    ("function", "documented"),
    [
        *((made.__init__, made) for made in (OutboxBroker, OutboxRouter, Worker, OutboxClient, DeadLetters, Outbox)),
        *((function,) * 2 for function in (Selection, make_outbox_table, make_dlq_table, make_log_tables)),
        *((getattr(OutboxBroker, name),) * 2 for name in OF_BROKER),
        *((getattr(DeadLetters, name),) * 2 for name in ("find", "groups", "count", "replay", "edit", "purge")),
        *((getattr(Outbox, name),) * 2 for name in OF_LOG),
        *((getattr(Parking, name),) * 2 for name in ("list", "retry", "resolve", "skip")),
        *((getattr(Partitions, name),) * 2 for name in ("ensure", "drop")),
        *((getattr(Groups, name),) * 2 for name in ("list", "pause", "resume", "delete")),
    ],
)
def test_docstring_says_what_each_parameter_is(function: Callable[..., Any], documented: Any) -> None:
    assert _described(documented.__doc__) == {*_options(function)}

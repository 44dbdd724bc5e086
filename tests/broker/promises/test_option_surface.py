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


def _shared(functions: list[Callable[..., Any]]) -> set[str]:
    return set.intersection(*({*_options(function)} for function in functions))


def test_router_takes_the_options_of_a_brokers_subscriber() -> None:
    assert _options(OutboxRouter.subscriber) == _options(OutboxBroker.subscriber)


def _types(function: Callable[..., Any]) -> dict[str, Any]:
    return {name: kind for name, kind in get_type_hints(function).items() if name != "return"}


def test_options_to_pass_on_are_those_of_a_brokers_subscriber() -> None:
    declared = _types(OutboxBroker.subscriber)
    assert get_type_hints(SubscriberOptions) == {
        name: kind for name, kind in declared.items() if name not in ("queues", "dependencies")
    }


def test_options_to_pass_on_are_those_of_a_brokers_publisher() -> None:
    declared = _types(OutboxBroker.publisher)
    assert get_type_hints(PublisherOptions) == {name: kind for name, kind in declared.items() if name != "queue"}


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


def test_brokers_of_faststream_share_constructor_arguments() -> None:
    shared = set.intersection(*map(_arguments_of_broker, WRITTEN_IN_ONE_MODULE))
    assert {"graceful_timeout", "middlewares", "ack_policy", "logger", "apply_types", "security"} <= shared


def test_constructor_takes_what_every_broker_of_faststream_takes() -> None:
    shared = set.intersection(*map(_arguments_of_broker, WRITTEN_IN_ONE_MODULE))
    assert shared - {*_options(OutboxBroker.__init__)} == set()


def test_subscriber_takes_what_every_broker_of_faststream_takes() -> None:
    assert _shared([broker.subscriber for broker in IN_TREE]) - {*_options(OutboxBroker.subscriber)} == set()


def test_publisher_takes_what_every_broker_of_faststream_takes() -> None:
    assert _shared([broker.publisher for broker in IN_TREE]) - {*_options(OutboxBroker.publisher)} == set()


def test_router_takes_what_every_router_of_faststream_takes() -> None:
    routers: list[Any] = [KafkaRouter, NatsRouter, RabbitRouter, RedisRouter]
    assert _shared([router.__init__ for router in routers]) - {*_options(OutboxRouter.__init__)} == set()


def test_publisher_object_takes_what_the_brokers_publish_takes() -> None:
    assert {*_options(OutboxBroker.publish)} - {*_options(OutboxPublisher.publish)} == {"topic"}


def test_response_takes_what_the_brokers_publish_takes() -> None:
    # To whom an answer to an answer goes is up to publishers.
    assert {*_options(OutboxBroker.publish)} - {*_options(OutboxResponse.__init__)} == {"message", "reply_to"}


def test_batch_takes_what_the_brokers_publish_takes() -> None:
    missing = {*_options(OutboxBroker.publish)} - {*_options(OutboxBroker.publish_batch)}
    # A timer's name is one message's, and so is an id: message_ids has them.
    assert missing == {"message", "reply_to", "timer_id", "timer_conflict", "message_id"}


def test_publish_sync_takes_what_publish_takes() -> None:
    assert {*_options(OutboxBroker.publish_sync)} == {*_options(OutboxBroker.publish)}


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


def test_response_of_earlier_releases_can_be_made() -> None:
    response = OutboxResponse(
        {"a": 1},
        queue="orders",
        session=fake_session(),
        headers=None,
        correlation_id=None,
        activate_in=None,
        activate_at=None,
        timer_id=None,
        timer_conflict="ignore",
    )
    assert response.as_publish_command().destination == "orders"


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


@pytest.mark.parametrize(
    ("function", "documented"),
    [
        (OutboxBroker.__init__, OutboxBroker),
        (OutboxBroker.subscriber, OutboxBroker.subscriber),
        (OutboxBroker.publisher, OutboxBroker.publisher),
        (OutboxBroker.include_router, OutboxBroker.include_router),
        (OutboxBroker.publish, OutboxBroker.publish),
        (OutboxBroker.publish_sync, OutboxBroker.publish_sync),
        (OutboxBroker.publish_batch, OutboxBroker.publish_batch),
        (OutboxBroker.request, OutboxBroker.request),
        (OutboxBroker.cancel_timer, OutboxBroker.cancel_timer),
        (OutboxBroker.cancel_timer_sync, OutboxBroker.cancel_timer_sync),
        (OutboxBroker.fetch_unprocessed, OutboxBroker.fetch_unprocessed),
        (OutboxBroker.ping, OutboxBroker.ping),
        (OutboxBroker.validate_schema, OutboxBroker.validate_schema),
        (OutboxBroker.pause, OutboxBroker.pause),
        (OutboxBroker.resume, OutboxBroker.resume),
        (OutboxRouter.__init__, OutboxRouter),
        (Worker.__init__, Worker),
        (OutboxClient.__init__, OutboxClient),
        (Selection, Selection),
        (DeadLetters.__init__, DeadLetters),
        *((getattr(DeadLetters, name),) * 2 for name in ("find", "groups", "count", "replay", "edit", "purge")),
        (make_outbox_table, make_outbox_table),
        (make_dlq_table, make_dlq_table),
        (make_log_tables, make_log_tables),
        (Outbox.__init__, Outbox),
        *((getattr(Outbox, name),) * 2 for name in OF_LOG),
        *((getattr(Parking, name),) * 2 for name in ("list", "retry", "resolve", "skip")),
        *((getattr(Partitions, name),) * 2 for name in ("ensure", "drop")),
        *((getattr(Groups, name),) * 2 for name in ("list", "pause", "resume", "delete")),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_docstring_says_what_each_parameter_is(function: Callable[..., Any], documented: Any) -> None:
    assert _described(documented.__doc__) == {*_options(function)}

"""The ordered log: the names, parameters and defaults of the API reference."""

import asyncio
import dataclasses
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, get_args, get_origin

import pytest

from faststream_outbox.log import Outbox, OutboxMessage, Subscriber
from tests.cases import case, each
from tests.contract.shop import Shop

ISubscriber: TypeAlias = Callable[[OutboxMessage], Awaitable[None]]


async def nothing(message: OutboxMessage) -> None: ...


def parameters(method: Callable[..., Any]) -> dict[str, Any]:
    """The parameters that can be given by place, and their defaults."""
    found = inspect.signature(method).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in found
        if parameter.name != "self" and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }


REQUIRED = inspect.Parameter.empty


def test_a_message_has_the_documented_fields_in_their_order() -> None:
    documented = ["uri", "payload", "metadata", "created_at", "position", "transaction_id"]
    assert [field.name for field in dataclasses.fields(OutboxMessage)][:6] == documented


def test_what_the_database_assigns_is_none_until_it_has() -> None:
    message = OutboxMessage(uri="kafka://orders", payload={"type": "OrderCreated"}, metadata={"event_id": "1"})
    assert (message.created_at, message.position, message.transaction_id) == (None, None, None)


def test_a_message_takes_its_fields_by_place_and_by_name() -> None:
    by_place = OutboxMessage("kafka://orders", {"a": 1}, {"event_id": "1"}, None, 7, 8)
    by_name = OutboxMessage(
        uri="kafka://orders",
        payload={"a": 1},
        metadata={"event_id": "1"},
        created_at=None,
        position=7,
        transaction_id=8,
    )
    assert by_place == by_name


async def test_what_was_published_is_equal_to_what_is_read_but_for_what_was_assigned(shop: Shop) -> None:
    published = OutboxMessage("kafka://orders", {"type": "OrderCreated"}, {"event_id": "1"})
    async with shop.session.begin():
        await shop.outbox.publish(shop.session, published)
    (read,) = await shop.read()
    assert None not in (read.created_at, read.position, read.transaction_id)
    assigned = {"created_at": None, "position": None, "transaction_id": None, "tick": None}
    assert dataclasses.replace(read, **assigned) == published  # type: ignore[arg-type]


@each("method", ["publish", "dispatch", "run", "__aiter__", "get_position", "set_position", "setup", "cleanup"])
def test_every_method_of_the_interface_is_there(method: str) -> None:
    assert callable(getattr(Outbox, method))


def test_the_parameters_of_dispatch() -> None:
    assert parameters(Outbox.dispatch) == {
        "subscriber": REQUIRED,
        "consumer_group": "",
        "uri": "",
        "worker_id": 0,
        "num_workers": 1,
    }


def test_the_parameters_of_run() -> None:
    assert parameters(Outbox.run) == {
        "subscriber": REQUIRED,
        "consumer_group": "",
        "uri": "",
        "process_id": 0,
        "num_processes": 1,
        "concurrency": 1,
        "poll_interval": 1.0,
        "stop_event": None,
    }


def test_the_parameters_of_the_constructor() -> None:
    assert parameters(Outbox.__init__) == {
        "session_pool": REQUIRED,
        "outbox_table": "outbox",
        # After the name of the log: `outbox_offsets` beside `outbox`.
        "offsets_table": None,
        "batch_size": 100,
    }


def test_the_parameters_of_positions() -> None:
    assert parameters(Outbox.get_position) == {"session": REQUIRED, "consumer_group": "", "uri": ""}
    assert parameters(Outbox.set_position) == {
        "session": REQUIRED,
        "consumer_group": "",
        "uri": "",
        "transaction_id": 0,
        "offset": 0,
    }


def test_a_subscriber_takes_a_message_and_is_awaited() -> None:
    (arguments, result), (documented, _) = get_args(Subscriber), get_args(ISubscriber)
    assert arguments == documented
    assert get_origin(result) is Awaitable


async def test_a_subscriber_may_be_any_callable_that_returns_an_awaitable(shop: Shop) -> None:
    seen: list[Any] = []

    class Counter:
        async def __call__(self, message: OutboxMessage) -> None:
            seen.append(message.payload)

        async def method(self, message: OutboxMessage) -> None:
            seen.append(message.payload)

    async def function(message: OutboxMessage) -> None:
        seen.append(message.payload)

    def future(message: OutboxMessage) -> Awaitable[None]:
        return asyncio.ensure_future(function(message))

    subscribers: list[ISubscriber] = [function, future, Counter(), Counter().method]
    await shop.put("kafka://orders", 1)
    for number, subscriber in enumerate(subscribers):
        await shop.outbox.dispatch(subscriber, f"group {number}")
    assert seen == [1, 1, 1, 1]


async def test_a_worker_that_is_none_of_the_workers_is_refused(shop: Shop) -> None:
    for worker_id, num_workers in ((3, 3), (-1, 3), (0, 0), (0, 257)):
        with case((worker_id, num_workers)), pytest.raises(ValueError, match="worker_id and num_workers"):
            await shop.outbox.dispatch(nothing, worker_id=worker_id, num_workers=num_workers)


async def test_arguments_of_run_that_cannot_work_are_refused_at_once(shop: Shop) -> None:
    wrong: list[dict[str, Any]] = [
        {"process_id": 3, "num_processes": 3},
        {"process_id": -1},
        {"num_processes": 0},
        {"concurrency": 0},
        {"num_processes": 20, "concurrency": 20},
        {"poll_interval": 0},
    ]
    for arguments in wrong:
        with case(arguments), pytest.raises(ValueError, match=r"process|concurrency|poll_interval"):
            async with asyncio.timeout(30):
                await shop.outbox.run(nothing, **arguments)

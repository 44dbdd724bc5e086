"""Options that cannot work are refused where they are written."""

import math
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.outcomes.retry import NoRetry
from faststream_outbox._internal.queue.options import WorkerOptions, checked_queues
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType
from faststream_outbox.queue import DeadLetters, OutboxClient, Worker
from tests.cases import each
from tests.queue.rig import done

COUNTS = ("max_workers", "fetch_batch_size", "crash_limit", "max_deliveries", "batch_size")
SECONDS = ("min_fetch_interval", "max_fetch_interval", "lease_ttl_seconds", "handler_timeout")
SECONDS_OR_ZERO = ("graceful_timeout", "batch_wait")


Refused = tuple[str, object, type[Exception], str]


def refused(names: Iterable[str], values: Iterable[object], error: type[Exception], text: str) -> Iterator[Refused]:
    for name, value in product(names, values):
        yield name, value, error, text.format(name=name, value=value)


@each(
    ("name", "value", "error", "text"),
    [
        *refused(COUNTS, [0, -1], InvalidOption, "{name} must be at least 1, not {value}"),
        *refused(COUNTS, [1.0, "1", True], InvalidOptionType, "{name} must be an int"),
        *refused([*COUNTS[:3], *SECONDS[:3], "batch_wait"], [None], InvalidOptionType, "{name} must be"),
        *refused(
            SECONDS + SECONDS_OR_ZERO,
            *([-0.1, math.nan, math.inf, 1e12], InvalidOption, "{name} must be a finite number of seconds"),
        ),
        *refused(SECONDS + SECONDS_OR_ZERO, ["1", True], InvalidOptionType, "{name} must be a number of seconds"),
        *refused(SECONDS, [0], InvalidOption, "{name} must be a finite number of seconds above 0"),
        *refused(
            ["on_undecided", "on_lease_lost", "on_dead"],
            *(["explode", None, True], InvalidOption, "{name} must be one of"),
        ),
        *refused(["retry_strategy"], [None, NoRetry, object(), 5], InvalidOption, "{name}=.* cannot work"),
        *refused(["batch_size"], [7], InvalidOption, "say batch=True too"),
        *refused(["batch_wait"], [0.5], InvalidOption, "say batch=True too"),
    ],
)
def test_what_cannot_work_is_refused(name: str, value: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        WorkerOptions(**{name: value})


def test_a_shortest_interval_above_the_longest_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"min_fetch_interval=5\.0 exceeds max_fetch_interval=2\.0"):
        WorkerOptions(min_fetch_interval=5.0, max_fetch_interval=2.0)


@each("name", ["max_deliveries", "batch_size", "graceful_timeout", "handler_timeout"])
def test_none_is_taken_where_it_means_no_limit(name: str) -> None:
    assert getattr(WorkerOptions(**{name: None}), name) is None


@each("name", SECONDS_OR_ZERO)
def test_zero_seconds_are_taken_where_they_mean_at_once(name: str) -> None:
    assert getattr(WorkerOptions(**{name: 0}), name) == 0


@each(
    ("options", "expected"),
    [
        ({}, 1),
        ({"batch": True}, 10),
        ({"batch": True, "batch_size": 7}, 7),
        ({"batch": True, "fetch_batch_size": 50}, 50),
    ],
)
def test_most_per_call_is_one_or_the_size_of_a_batch(options: dict[str, Any], expected: int) -> None:
    assert WorkerOptions(**options).most_per_call == expected


class TestQueues:
    def test_are_in_their_order_and_one_name_is_a_list_of_one(self) -> None:
        assert [checked_queues("orders"), checked_queues(["b", "a"])] == [("orders",), ("b", "a")]

    @each(
        ("queues", "error", "text"),
        [
            ([], InvalidOption, "at least one queue"),
            (["a", "a"], InvalidOption, "named twice"),
            ("", InvalidMessage, "must not be empty"),
            (["a", 5], InvalidMessageType, "must be a str"),
            ("$paused", InvalidMessage, "reserved"),
            ("x" * 256, InvalidMessage, "256 characters"),
        ],
    )
    def test_that_cannot_be_are_refused(self, queues: Any, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            checked_queues(queues)


class TestWithoutDeadLetters:
    async def test_a_key_cannot_be_blocked_by_them(self, engine: AsyncEngine, table: Table) -> None:
        client = OutboxClient(engine, table)
        with pytest.raises(InvalidOption, match=r"on_dead='block' needs dead letters .* dlq_table"):
            Worker(engine, table, "orders", done, client=client, on_dead="block")

    async def test_there_is_nothing_to_look_at(self, engine: AsyncEngine, table: Table) -> None:
        with pytest.raises(InvalidOption, match="no dead-letter table: pass dlq_table"):
            DeadLetters(OutboxClient(engine, table))

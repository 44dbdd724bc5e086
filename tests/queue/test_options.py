"""Options that cannot work are refused where they are written."""

import math
from typing import Any

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.outcomes.retry import NoRetry
from faststream_outbox._internal.queue.options import WorkerOptions, checked_queues
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType
from faststream_outbox.queue import DeadLetters, OutboxClient, Worker
from tests.cases import each

COUNTS = ("max_workers", "fetch_batch_size", "crash_limit", "max_deliveries", "batch_size")
SECONDS = ("min_fetch_interval", "max_fetch_interval", "lease_ttl_seconds")
SECONDS_OR_ZERO = ("graceful_timeout", "batch_wait")


async def handle(claim: object) -> Any: ...


class TestNumbers:
    @each("name", COUNTS)
    @each("value", [0, -1])
    def test_a_count_below_one_is_refused(self, name: str, value: int) -> None:
        with pytest.raises(InvalidOption, match=f"{name} must be at least 1, not {value}"):
            WorkerOptions(**{name: value})

    @each("name", COUNTS)
    @each("value", [1.0, "1", True])
    def test_a_count_that_is_no_int_is_refused(self, name: str, value: object) -> None:
        with pytest.raises(InvalidOptionType, match=f"{name} must be an int"):
            WorkerOptions(**{name: value})

    @each("name", ["max_workers", "fetch_batch_size", "crash_limit", *SECONDS, "batch_wait"])
    def test_none_is_refused_where_a_number_is_needed(self, name: str) -> None:
        with pytest.raises(InvalidOptionType, match=f"{name} must be"):
            WorkerOptions(**{name: None})

    @each("options", [{"batch_size": 7}, {"batch_wait": 0.5}])
    def test_options_of_a_batch_need_a_batch(self, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidOption, match="say batch=True too"):
            WorkerOptions(**options)

    @each("name", ["max_deliveries", "batch_size", "graceful_timeout"])
    def test_none_is_taken_where_it_means_no_limit(self, name: str) -> None:
        assert getattr(WorkerOptions(**{name: None}), name) is None

    @each("name", SECONDS + SECONDS_OR_ZERO)
    @each("value", [-0.1, math.nan, math.inf, 1e12])
    def test_seconds_below_zero_or_beyond_reason_are_refused(self, name: str, value: float) -> None:
        with pytest.raises(InvalidOption, match=f"{name} must be a finite number of seconds"):
            WorkerOptions(**{name: value})

    @each("name", SECONDS + SECONDS_OR_ZERO)
    @each("value", ["1", True])
    def test_seconds_that_are_no_number_are_refused(self, name: str, value: object) -> None:
        with pytest.raises(InvalidOptionType, match=f"{name} must be a number of seconds"):
            WorkerOptions(**{name: value})

    @each("name", SECONDS)
    def test_zero_seconds_are_refused_where_something_repeats(self, name: str) -> None:
        with pytest.raises(InvalidOption, match=f"{name} must be a finite number of seconds above 0"):
            WorkerOptions(**{name: 0})

    @each("name", SECONDS_OR_ZERO)
    def test_zero_seconds_are_taken_where_they_mean_at_once(self, name: str) -> None:
        assert getattr(WorkerOptions(**{name: 0}), name) == 0

    def test_a_shortest_interval_above_the_longest_is_refused(self) -> None:
        with pytest.raises(InvalidOption, match=r"min_fetch_interval=5\.0 exceeds max_fetch_interval=2\.0"):
            WorkerOptions(min_fetch_interval=5.0, max_fetch_interval=2.0)


class TestChoices:
    @each("name", ["on_undecided", "on_lease_lost", "on_dead"])
    @each("value", ["explode", None, True])
    def test_an_unknown_policy_is_refused(self, name: str, value: object) -> None:
        with pytest.raises(InvalidOption, match=f"{name} must be one of"):
            WorkerOptions(**{name: value})

    @each("strategy", [None, NoRetry, object(), 5])
    def test_what_is_no_strategy_is_refused(self, strategy: object) -> None:
        with pytest.raises(InvalidOption, match=r"retry_strategy=.* cannot work"):
            WorkerOptions(retry_strategy=strategy)


class TestMostPerCall:
    @each(
        ("options", "expected"),
        [
            ({}, 1),
            ({"batch": True}, 10),
            ({"batch": True, "batch_size": 7}, 7),
            ({"batch": True, "fetch_batch_size": 50}, 50),
        ],
    )
    def test_is_one_or_the_size_of_a_batch(self, options: dict[str, Any], expected: int) -> None:
        assert WorkerOptions(**options).most_per_call == expected


class TestQueues:
    def test_one_name_is_a_list_of_one(self) -> None:
        assert checked_queues("orders") == ("orders",)

    def test_keep_their_order(self) -> None:
        assert checked_queues(["b", "a"]) == ("b", "a")

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
            Worker(engine, table, "orders", handle, client=client, on_dead="block")

    async def test_there_is_nothing_to_look_at(self, engine: AsyncEngine, table: Table) -> None:
        with pytest.raises(InvalidOption, match="no dead-letter table: pass dlq_table"):
            DeadLetters(OutboxClient(engine, table))

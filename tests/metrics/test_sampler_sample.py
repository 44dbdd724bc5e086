"""Answers of an overview as values of gauges: bounded, and each question for itself."""

from collections.abc import Iterable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.metrics import sampler as sample
from faststream_outbox._internal.metrics.sampler import Reading
from faststream_outbox.overview import BlockedKey, GapStatus, Process, QueueStatus


def values(readings: Iterable[Reading]) -> dict[tuple[str, ...], float]:
    return {(one.series.name, *one.labels.values()): one.value for one in readings}


def queue(name: str, ready: int = 0, **fields: Any) -> QueueStatus:
    given = {"scheduled": 0, "leased": 0, "dead": 0, "oldest_ready_seconds": 0.0, "is_paused": False}
    return QueueStatus(queue=name, ready=ready, is_estimate=False, **{**given, **fields})


def group(name: str, messages: int = 0, **fields: Any) -> GroupStatus:
    given: dict[str, Any] = {
        "uri": "orders",
        "members": 1,
        "slots": 256,
        "paused_since": None,
        "last_seen": None,
        "parked": 0,
        "deferred": 0,
        "retrying": 0,
        "has_more": False,
        "seconds": 0.0,
        "is_estimate": False,
    }
    return GroupStatus(group=name, messages=messages, **{**given, **fields})


def test_queues() -> None:
    found = values(
        sample.of_queues([queue("orders", 5, scheduled=4, leased=3, dead=2, oldest_ready_seconds=1.5, is_paused=True)])
    )
    assert found == {
        ("queue_ready", "orders"): 5,
        ("queue_scheduled", "orders"): 4,
        ("queue_leased", "orders"): 3,
        ("queue_dead", "orders"): 2,
        ("queue_set_apart", "orders"): 0,
        ("queue_oldest_ready_seconds", "orders"): 1.5,
        ("queue_paused", "orders"): 1,
    }


def test_of_ten_thousand_queues_those_with_the_most_have_gauges_of_their_own() -> None:
    found = values(sample.of_queues([queue(f"q{n}", n, oldest_ready_seconds=float(n)) for n in range(10_000)]))
    ready = {name: value for (series, name), value in found.items() if series == "queue_ready"}
    assert len(ready) == sample.MOST_NAMES + 1
    assert ready["q9999"] == 9999
    assert ready["other"] == sum(range(10_000 - sample.MOST_NAMES))
    assert found["queue_oldest_ready_seconds", "other"] == 9999 - sample.MOST_NAMES


def test_groups_with_their_blocked_keys() -> None:
    since = datetime.now(UTC)
    blocked = [BlockedKey("billing", "orders", str(n), n, "parked", 1, False, None, None) for n in range(3)]
    found = values(
        sample.of_groups(
            [group("billing", 7, seconds=2.5, members=2, parked=3), group("mailing", paused_since=since)], blocked
        )
    )
    assert found["group_lag_messages", "billing", "orders"] == 7
    assert found["group_lag_seconds", "billing", "orders"] == 2.5
    assert found["group_members", "billing", "orders"] == 2
    assert found["group_parked", "billing", "orders"] == 3
    assert found["group_blocked_keys", "billing", "orders"] == 3
    assert found["group_blocked_keys", "mailing", "orders"] == 0
    assert (found["group_paused", "billing", "orders"], found["group_paused", "mailing", "orders"]) == (0, 1)


def test_oldest_gap() -> None:
    assert values(sample.of_gaps([], "log")) == {("oldest_gap_seconds", "log"): 0}
    gaps = [GapStatus(1, 1, 9.0, None, None, None), GapStatus(2, 3, 4.0, None, None, None)]
    assert values(sample.of_gaps(gaps, "log")) == {("oldest_gap_seconds", "log"): 9.0}


def test_connections_and_processes() -> None:
    one = Process("3f2a9c1b", "web", 1, ("claim", "settle"), (10, 11, 12), None, 0, 0)
    same = Process("4f2a9c1b", "web", 1, ("read",), (13,), None, 0, 0)
    other = Process("5f2a9c1b", "web", 2, ("read",), (14,), None, 0, 0)
    assert values(sample.of_processes([one, same, other])) == {("connections",): 5, ("processes",): 2}


def test_relays_of_which_the_age_is_known() -> None:
    known = SimpleNamespace(name="to nats", destination="nats", oldest_seconds=3.0)
    unknown = SimpleNamespace(name="to kafka", destination="kafka", oldest_seconds=None)
    assert values(sample.of_relays([known, unknown])) == {("relay_oldest_seconds", "to nats", "nats"): 3.0}


async def test_a_question_that_fails_costs_its_own_gauges_only() -> None:
    async def fail() -> Iterable[Reading]:
        raise OSError("away")

    async def answer() -> Iterable[Reading]:
        return sample.of_queues([queue("orders", 1)])

    readings, failed = await sample.ask([("groups", fail), ("queues", answer)])
    found = values(readings)
    assert (found["sample_failed", "groups"], found["sample_failed", "queues"]) == (1, 0)
    assert found["queue_ready", "orders"] == 1
    assert list(failed) == ["groups"]
    assert "sample_seconds" in {one.series.name for one in readings}

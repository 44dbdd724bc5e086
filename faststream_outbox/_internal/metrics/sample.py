"""One sample: the answers of an overview as values of gauges.

Pure, but for `ask`, which puts the questions one after the other; one that fails costs its own gauges and no other.
However many queues and groups there are, so many have gauges of their own, and the rest is `other`. Used by `sampler`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

from faststream_outbox._internal.log.admin.groups import GroupStatus
from faststream_outbox._internal.metrics import sampled_series as known
from faststream_outbox._internal.metrics.bounds import OTHER
from faststream_outbox._internal.metrics.series import Series
from faststream_outbox._internal.overview.processes import Process
from faststream_outbox._internal.overview.queues import QueueStatus
from faststream_outbox._internal.overview.topics import BlockedKey, GapStatus
from faststream_outbox._internal.sql.overview_rows import TableRowsRow

MOST_NAMES = 100
"""Queues, or groups, that have gauges of their own: those with the most messages."""
MOST_KEYS = 1000
"""Blocked keys that are counted."""


class Reading(NamedTuple):
    """A value of one gauge."""

    series: Series
    labels: Mapping[str, str]
    value: float


Question = tuple[str, Callable[[], Awaitable[Iterable[Reading]]]]
"""A name, and what gives the readings."""


async def ask(questions: Sequence[Question]) -> tuple[list[Reading], dict[str, Exception]]:
    """All that is answered, and what is not."""
    began = monotonic()
    readings: list[Reading] = []
    failed: dict[str, Exception] = {}
    for name, question in questions:
        try:
            readings += await question()
        except Exception as error:  # noqa: BLE001 - reported; the others are asked all the same
            failed[name] = error
        readings.append(Reading(known.SAMPLE_FAILED, {"question": name}, float(name in failed)))
    readings.append(Reading(known.SAMPLE_SECONDS, {}, monotonic() - began))
    return readings, failed


def of_queues(found: Sequence[QueueStatus]) -> list[Reading]:
    """How much is in queues."""
    sums = (
        (known.QUEUE_READY, "ready"),
        (known.QUEUE_SCHEDULED, "scheduled"),
        (known.QUEUE_LEASED, "leased"),
        (known.QUEUE_DEAD, "dead"),
        (known.QUEUE_SET_APART, "set_apart"),
    )
    readings: list[Reading] = []
    ordered = sorted(found, key=lambda each: (each.ready, each.leased, each.scheduled, each.dead), reverse=True)
    for name, some in _named(ordered, lambda each: each.queue):
        labels = {"queue": name}
        readings += [Reading(series, labels, sum(getattr(each, field) for each in some)) for series, field in sums]
        readings.append(Reading(known.QUEUE_OLDEST, labels, max(each.oldest_ready_seconds for each in some)))
        readings.append(Reading(known.QUEUE_PAUSED, labels, float(any(each.is_paused for each in some))))
    return readings


def of_groups(found: Sequence[GroupStatus], blocked: Sequence[BlockedKey]) -> list[Reading]:
    """How far groups are."""
    keys: dict[tuple[str, str], int] = {}
    for key in blocked:
        keys[key.group, key.uri] = keys.get((key.group, key.uri), 0) + 1
    readings: list[Reading] = []
    ordered = sorted(found, key=lambda each: (each.messages, each.parked), reverse=True)
    for (group, uri), some in _named(ordered, lambda each: (each.group, each.uri), (OTHER, OTHER)):
        labels = {"group": group, "uri": uri}
        readings += [
            Reading(known.GROUP_LAG, labels, sum(each.messages for each in some)),
            Reading(known.GROUP_LAG_SECONDS, labels, max(each.seconds for each in some)),
            Reading(known.GROUP_MEMBERS, labels, sum(each.members for each in some)),
            Reading(known.GROUP_PARKED, labels, sum(each.parked for each in some)),
            Reading(known.GROUP_BLOCKED_KEYS, labels, sum(keys.get((each.group, each.uri), 0) for each in some)),
            Reading(known.GROUP_PAUSED, labels, float(any(each.paused_since is not None for each in some))),
        ]
    return readings


def of_gaps(found: Sequence[GapStatus], log: str) -> list[Reading]:
    """How old the oldest gap is; 0 where there is none."""
    return [Reading(known.OLDEST_GAP, {"log": log}, max((gap.age_seconds for gap in found), default=0.0))]


def of_processes(found: Sequence[Process]) -> list[Reading]:
    """How many processes there are, and connections of theirs."""
    return [
        Reading(known.CONNECTIONS, {}, sum(len(process.backend_pids) for process in found)),
        Reading(known.PROCESSES, {}, len({(process.host, process.pid) for process in found})),
    ]


def of_relays(found: Sequence[Any]) -> list[Reading]:
    """How late relays are, as far as that is known."""
    return [
        Reading(known.RELAY_OLDEST, {"relay": each.name, "transport": each.destination}, each.oldest_seconds)
        for each in found[:MOST_NAMES]
        if each.oldest_seconds is not None
    ]


def of_rows(found: Iterable[TableRowsRow]) -> list[Reading]:
    """How many rows of each table live, and how many are dead."""
    readings: list[Reading] = []
    for row in found:
        readings.append(Reading(known.LIVE_ROWS, {"table": row.table_name}, row.live))
        readings.append(Reading(known.DEAD_ROWS, {"table": row.table_name}, row.dead))
    return readings


def _named(found: Sequence[Any], name: Callable[[Any], Any], other: Any = OTHER) -> list[tuple[Any, list[Any]]]:
    """Each of the first so many by its name, and the rest together."""
    named = [(name(each), [each]) for each in found[:MOST_NAMES]]
    rest = list(found[MOST_NAMES:])
    return [*named, (other, rest)] if rest else named

"""The queues of a table: how many messages wait, how old the oldest is, what is leased, scheduled, dead; and timers.

A question reads at most `BUDGET` messages or so, however many there are. Each lane has its share; where most lanes are
short, the few that are long share what is left in a second round. Asked by `Overview`, on its connection; `processes`
counts leases by the same shares.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.envelope import checked_queue
from faststream_outbox._internal.options import MOST_ROWS, check_count
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql.overview_rows import DeadCountRow, LaneCountRow, TimerRow
from faststream_outbox._internal.sql.queue_rows import LaneRow
from faststream_outbox._internal.sql.statements import column, named, statements

MOST = 10_000
"""Messages of one kind that are counted in a lane."""
BUDGET = 200_000
"""Messages of one kind that are counted in all lanes together, in one round."""
LEAST = 10
MOST_QUEUES = 10_000
AT_ONCE = 500
"""Lanes of one statement."""
OLD_SECONDS = 60.0
"""The age of a message that is due from which on it is worth a line, or a colour."""


async def queue_names(connection: DedicatedConnection, names: Names, queue: str | None = None) -> list[str]:
    """The queues that have messages, dead letters or a pause, by name; or the one that is asked for, if it has."""
    sql = statements("control", names)
    if queue is None:
        return column(await connection.fetch(sql["queues"], {"limit": MOST_QUEUES}))[:MOST_QUEUES]
    name = checked_queue(queue)
    return [name] if await connection.fetch(sql["known_queue"], {"queue": name}) else []


async def lanes_of(connection: DedicatedConnection, names: Names, queues: Sequence[str]) -> list[LaneRow]:
    """The lanes of these queues."""
    survey = statements("scan", names)["survey"]
    found: list[LaneRow] = []
    for first in range(0, len(queues), AT_ONCE):
        found += named(LaneRow, await connection.fetch(survey, {"queues": queues[first : first + AT_ONCE]}))
    return found


def share(lanes: int) -> int:
    """How many messages of each of so many lanes are counted."""
    return max(LEAST, min(MOST, BUDGET // max(1, lanes)))


def as_values(lanes: Sequence[LaneRow]) -> dict[str, Any]:
    """Lanes as parameters."""
    return {
        "queues": [lane.queue for lane in lanes],
        "keyed": [lane.keyed for lane in lanes],
        "priorities": [lane.priority for lane in lanes],
    }


MOST_ESTIMATED = 50
"""Queues of which the planner is asked how many messages they have."""


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A queue as it stands now."""

    queue: str
    ready: int
    """Due and not leased; a message whose lease has ended is ready again."""
    scheduled: int
    """Due later: timers, delays, retries."""
    leased: int
    """Claimed by somebody whose lease lives."""
    dead: int
    """Dead letters; 0 without a table for them."""
    oldest_ready_seconds: float
    """Since the oldest message that is ready fell due; 0 where none is."""
    is_paused: bool
    is_estimate: bool
    """Whether more were there than were counted: the counts are at least so many, or estimated."""
    set_apart: int = 0
    """Out of reach of every claim, because fetching them or writing their outcome failed again and again."""
    estimated_total: int | None = None
    """What the planner believes all messages of the queue to be, where not all were counted and it believes more."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted of a queue, or of one lane; `more_…` where the limit was reached."""

    ready: int = 0
    leased: int = 0
    scheduled: int = 0
    set_apart: int = 0
    oldest_seconds: float = 0.0
    more_due: bool = False
    more_later: bool = False

    @classmethod
    def of(cls, row: LaneCountRow, most: int) -> "Counts":
        """The counts of one lane, of which one more than so many of each kind was counted at most."""
        return cls(
            ready=row.ready,
            leased=row.leased,
            scheduled=row.scheduled,
            set_apart=row.set_apart,
            oldest_seconds=max(0.0, row.oldest_seconds or 0.0),
            more_due=row.due > most,
            more_later=row.scheduled > most or row.set_apart > most,
        )

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.ready + other.ready,
            self.leased + other.leased,
            self.scheduled + other.scheduled,
            self.set_apart + other.set_apart,
            max(self.oldest_seconds, other.oldest_seconds),
            self.more_due or other.more_due,
            self.more_later or other.more_later,
        )

    @property
    def has_more(self) -> bool:
        """Whether not all were counted."""
        return self.more_due or self.more_later


def status_of(
    queue: str, counts: Counts, *, dead: int, more_dead: bool, is_paused: bool, total: int | None
) -> QueueStatus:
    """A queue by what was counted of it, and what the planner believes its messages to be."""
    ready, scheduled = counts.ready, counts.scheduled
    if total is not None and counts.more_due != counts.more_later:
        # All but one kind is known, and so the rest is of that one. Of two kinds nobody knows the shares.
        rest = total - counts.leased - counts.set_apart
        if counts.more_due:
            ready = max(ready, rest - scheduled)
        else:
            scheduled = max(scheduled, rest - ready)
    return QueueStatus(
        queue=queue,
        ready=ready,
        scheduled=scheduled,
        leased=counts.leased,
        dead=dead,
        oldest_ready_seconds=counts.oldest_seconds,
        is_paused=is_paused,
        is_estimate=counts.has_more or more_dead,
        set_apart=counts.set_apart,
        estimated_total=total,
    )


async def fetch_queues(
    connection: DedicatedConnection, names: Names, queue: str | None, ttl: float
) -> list[QueueStatus]:
    """Every queue, or one; see `Overview.queues`."""
    found = await queue_names(connection, names, queue)
    counts = await _counted(connection, names, await lanes_of(connection, names, found), ttl)
    dead, most_dead = await _dead(connection, names, found)
    paused = set(column(await connection.fetch(statements("control", names)["paused"], {})))
    totals = await _estimated(connection, names, counts)
    return [
        status_of(
            name,
            counts.get(name, Counts()),
            dead=dead.get(name, 0),
            more_dead=dead.get(name, 0) > most_dead,
            is_paused=name in paused,
            total=totals.get(name),
        )
        for name in found
    ]


async def _counted(
    connection: DedicatedConnection, names: Names, lanes: Sequence[LaneRow], ttl: float
) -> dict[str, Counts]:
    sql = statements("overview", names)["count_lanes"]
    by_lane: dict[LaneRow, Counts] = {}
    left, before = list(lanes), 0
    while left and (most := share(len(left))) > before:
        for first in range(0, len(left), AT_ONCE):
            values = as_values(left[first : first + AT_ONCE]) | {"ttl": ttl, "most": most + 1}
            for row in named(LaneCountRow, await connection.fetch(sql, values)):
                by_lane[LaneRow(row.queue, row.keyed, row.priority)] = Counts.of(row, most)
        left, before = [lane for lane in left if by_lane[lane].has_more], most
    return _by_queue(by_lane.items())


def _by_queue(lanes: Iterable[tuple[LaneRow, Counts]]) -> dict[str, Counts]:
    found: dict[str, Counts] = {}
    for lane, counts in lanes:
        found[lane.queue] = found.get(lane.queue, Counts()) + counts
    return found


async def _dead(connection: DedicatedConnection, names: Names, queues: Sequence[str]) -> tuple[dict[str, int], int]:
    most = share(len(queues))
    if names.dead is None:
        return {}, most
    sql = statements("overview", names)["count_dead"]
    found: dict[str, int] = {}
    for first in range(0, len(queues), AT_ONCE):
        values = {"queues": queues[first : first + AT_ONCE], "most": most + 1}
        found.update(named(DeadCountRow, await connection.fetch(sql, values)))
    return found, most


async def _estimated(connection: DedicatedConnection, names: Names, counts: Mapping[str, Counts]) -> dict[str, int]:
    """What the planner believes of the queues that were not counted to their end."""
    sql = statements("overview", names)["estimate_queue"]
    long = [name for name, counted in counts.items() if counted.has_more]
    found: dict[str, int] = {}
    for name in long[:MOST_ESTIMATED]:
        (plan,) = column(await connection.fetch(sql, {"queue": name}))
        counted = counts[name]
        known = counted.ready + counted.leased + counted.scheduled + counted.set_apart
        if (planned := planned_rows(plan)) > known:
            # A planner without statistics guesses less than was counted.
            found[name] = planned
    return found


def planned_rows(plan: Any) -> int:
    """How many rows a plan in JSON expects; one driver reads it, and the other does not."""
    tree = json.loads(plan) if isinstance(plan, str | bytes) else plan
    return int(tree[0]["Plan"]["Plan Rows"])


@dataclass(frozen=True, slots=True)
class TimerStatus:
    """A message that has a `timer_id`."""

    queue: str
    timer_id: str
    id: int
    due_at: datetime
    is_leased: bool
    attempts_count: int


async def fetch_timers(
    connection: DedicatedConnection, names: Names, queue: str | None, limit: int, ttl: float
) -> list[TimerStatus]:
    """The next timers; see `Overview.timers`."""
    check_count("limit", limit, most=MOST_ROWS)
    name = None if queue is None else checked_queue(queue)
    values = {"limit": limit, "ttl": ttl}
    sql = statements("overview", names)
    if name is None:
        rows = await connection.fetch(sql["timers"], values | {"most": MOST + 1})
    else:
        rows = await connection.fetch(sql["timers_of_queue"], values | {"most": MOST + 1, "queue": name})
    found = named(TimerRow, rows)
    if found and found[0].seen > MOST:
        # Too many to sort: so they are read in due order, together with the messages that lie between them.
        found = await _by_due_order(connection, names, name, limit, ttl)
    return [TimerStatus(*row[:-1]) for row in found]


async def _by_due_order(
    connection: DedicatedConnection, names: Names, queue: str | None, limit: int, ttl: float
) -> list[TimerRow]:
    lanes = await lanes_of(connection, names, await queue_names(connection, names, queue))
    sql = statements("overview", names)["timers_of_lanes"]
    found: list[TimerRow] = []
    for first in range(0, len(lanes), AT_ONCE):
        values = as_values(lanes[first : first + AT_ONCE]) | {"limit": limit, "ttl": ttl, "most": share(len(lanes))}
        found += named(TimerRow, await connection.fetch(sql, values))
    return sorted(found, key=lambda row: (row.due_at, row.id))[:limit]

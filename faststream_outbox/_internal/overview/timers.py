"""Timers that have not fired yet."""

from dataclasses import dataclass
from datetime import datetime

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.envelope import checked_queue
from faststream_outbox._internal.options import MOST_ROWS, check_count
from faststream_outbox._internal.overview.lanes import AT_ONCE, MOST, as_values, lanes_of, queue_names, share
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.overview_rows import TimerRow
from faststream_outbox._internal.sql.rows import named


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

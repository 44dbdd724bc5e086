"""How fast the tables move, by the server's own statistics.

Between two questions the difference of what the server has counted is divided by the time between them. It counts rows:
whatever was inserted, also by a transaction that was rolled back, by a pause or by a replay; and whatever was deleted:
done, dead, cancelled, resumed. A server process reports what it did after its transaction, at most once a second, so
that a second or two are smoothed over. A read replica counts nothing.
"""

from dataclasses import dataclass

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.overview_rows import WrittenRow
from faststream_outbox._internal.sql.rows import named


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows of the queues' table per second since the question before."""

    published: float | None
    """Inserted, per second. None at the first question, after the statistics began anew, and on a read replica."""
    finished: float | None
    """Deleted, per second: done, dead and cancelled."""
    died: float | None
    """Dead letters written, per second; None also without a table for them."""
    seconds: float
    """Between the two questions; 0 where there is nothing to compare with."""


NOTHING_YET = Rates(None, None, None, 0.0)


def rates_between(before: WrittenRow | None, now: WrittenRow) -> Rates:
    """The rates between two answers; pure."""
    if before is None or now.is_standby:
        return NOTHING_YET
    seconds = now.at - before.at
    if seconds <= 0 or now.inserted < before.inserted or now.deleted < before.deleted:
        # The statistics were reset, or this is another server.
        return NOTHING_YET
    died = None
    if before.died is not None and now.died is not None and now.died >= before.died:
        died = (now.died - before.died) / seconds
    published, finished = now.inserted - before.inserted, now.deleted - before.deleted
    return Rates(published / seconds, finished / seconds, died, seconds)


async def fetch_written(connection: DedicatedConnection, names: Names) -> WrittenRow:
    """What the server has counted so far."""
    sql = statements("overview", names)["written"]
    (row,) = named(WrittenRow, await connection.fetch(sql, {"table": names.table, "dead": names.dead}))
    return row

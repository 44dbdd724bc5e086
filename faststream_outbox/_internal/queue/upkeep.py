"""What the janitor does for queues: dead letters that are old enough go away, slice by slice.

A key that a dead letter holds (`on_dead="block"`) is free once the letter is gone. Made by the queue's client where
that was given a `Retention` for dead letters.
"""

from datetime import timedelta

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.janitor import Chore, Janitor
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.queue_rows import PurgedRow
from faststream_outbox._internal.sql.rows import named

SLICE = 1000


class Upkeep:
    """The chores of one outbox table."""

    def __init__(
        self,
        names: Names,
        events: Events,
        guard: DedicatedConnection,
        connection: DedicatedConnection,
        *,
        keep: timedelta,
        every: timedelta,
    ) -> None:
        self._connection = connection
        self._sql = statements("dead", names)
        self._events = events
        self._keep = keep.total_seconds()
        self._table = names.table
        self.janitor = Janitor(
            guard,
            (self._sql["lock_janitor"], self._table),
            [Chore("dead letters of " + self._table, self.purge)],
            events,
            every=every.total_seconds(),
            close=connection.close,
        )

    async def purge(self) -> None:
        """Delete dead letters that are old enough."""
        purged, after = 0, 0
        while True:
            values = {"age": self._keep, "after": after, "limit": SLICE}
            (row,) = named(PurgedRow, await self._connection.fetch(self._sql["purge_old"], values))
            purged += row.gone
            if row.last is None or row.seen < SLICE or not row.gone:
                break
            after = row.last
        if purged:
            self._events.emit(events.DeadLettersPurged(self._table, purged))

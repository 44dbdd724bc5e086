"""What the janitor does for an inbox: receipts that are old enough go away, slice by slice.

A message whose receipt is gone would be handled again, should it come again: receipts are to stay for longer than any
broker repeats itself. Made by `Inbox` where it was said how long.
"""

from datetime import datetime, timedelta
from typing import Any

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.janitor import Chore, Janitor
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.inbox_rows import Cleaned
from faststream_outbox._internal.sql.rows import named

SLICE = 1000
EVERY = timedelta(minutes=5)


def slice_values(keep: timedelta, after: datetime | None) -> dict[str, Any]:
    """The parameters of one slice, behind the one that ended `after` then."""
    return {"age": keep.total_seconds(), "after": after, "limit": SLICE}


class Upkeep:
    """The chore of one table of receipts."""

    def __init__(self, names: Names, events: Events, connection: DedicatedConnection, keep: timedelta) -> None:
        self._connection = connection
        self._sql = statements("inbox", names)
        self._events = events
        self._keep = keep
        self._table = names.table
        self.janitor = Janitor(
            connection.sibling("guard"),
            (self._sql["lock_cleaning"], self._table),
            [Chore("receipts of " + self._table, self._clean)],
            events,
            every=EVERY.total_seconds(),
            close=connection.close,
        )

    async def clean_once(self) -> None:
        """Delete receipts that are old enough, without leaving a connection behind: nobody may come to stop it."""
        connection = self._connection.sibling()
        try:
            await self._clean_through(connection)
        finally:
            await connection.close()

    async def _clean(self) -> None:
        await self._clean_through(self._connection)

    async def _clean_through(self, connection: DedicatedConnection) -> None:
        cleaned, after = 0, None
        while True:
            # From where the last slice ended: entries of the index that are dead already are not walked over again.
            rows = await connection.fetch(self._sql["clean"], slice_values(self._keep, after))
            gone, after = named(Cleaned, rows)[0]
            cleaned += gone
            if gone < SLICE:
                break
        if cleaned:
            self._events.emit(events.ReceiptsCleaned(self._table, cleaned))

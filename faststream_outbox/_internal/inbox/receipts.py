"""The receipts of a table: how many each consumer has, and what is old goes away.

Counted up to a bound, deleted slice by slice. A message whose receipt is gone would be handled again, should it come
again: receipts are to stay for longer than any broker repeats itself. `Upkeep` does it for an `Inbox` that was
said how long they stay; `Receipts` is for the command line.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.inbox.receipt import checked_keep
from faststream_outbox._internal.janitor import Chore, Janitor, purge_in_slices
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql.inbox_rows import Cleaned, Counted, FirstAndLast
from faststream_outbox._internal.sql.statements import Statement, column, named, statements

SLICE = 1000
EVERY = timedelta(minutes=5)


def slice_values(keep: timedelta, after: datetime | None) -> dict[str, Any]:
    """The parameters of one slice, behind the one that ended `after` then."""
    return {"age": keep.total_seconds(), "after": after, "limit": SLICE}


def cleaned_slice(rows: Sequence[Sequence[Any]]) -> tuple[int, datetime | None]:
    """How many went with a slice, and where the next one begins."""
    (row,) = named(Cleaned, rows)
    return row.gone, row.reached if row.gone >= SLICE else None


async def _clean(
    connection: DedicatedConnection, statement: Statement, keep: timedelta, on_progress: Callable[[int], object] | None
) -> int:
    async def clean_slice(after: datetime | None) -> tuple[int, datetime | None]:
        return cleaned_slice(await connection.fetch(statement, slice_values(keep, after)))

    return await purge_in_slices(clean_slice, on_progress)


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
        cleaned = await _clean(connection, self._sql["clean"], self._keep, None)
        if cleaned:
            self._events.emit(events.ReceiptsCleaned(self._table, cleaned))


MOST_CONSUMERS = 1000
MOST_COUNTED = 100_000
"""Receipts that are counted of each consumer, and of those that are old."""


@dataclass(frozen=True, slots=True)
class ConsumerReceipts:
    """How many receipts a consumer has."""

    consumer: str
    receipts: int
    is_estimate: bool
    """Whether there may be more than were counted."""


@dataclass(frozen=True, slots=True)
class ReceiptCounts:
    """What is in a table of receipts."""

    consumers: Sequence[ConsumerReceipts]
    first_received_at: datetime | None
    last_received_at: datetime | None


class Receipts:
    """The receipts of one table.

    connection: whose statements these are; closed by whoever made it.
    names: of the table.
    """

    def __init__(self, connection: DedicatedConnection, names: Names) -> None:
        self._connection = connection
        self._sql = statements("inbox", names)

    async def count(self) -> ReceiptCounts:
        """How many receipts each consumer has, and when the first and the last of them all were written."""
        values = {"limit": MOST_CONSUMERS, "most": MOST_COUNTED}
        rows = named(Counted, await self._connection.fetch(self._sql["consumers"], values))
        (times,) = named(FirstAndLast, await self._connection.fetch(self._sql["first_and_last"], {}))
        consumers = [ConsumerReceipts(row.consumer, row.receipts, row.receipts >= MOST_COUNTED) for row in rows]
        return ReceiptCounts(consumers, times.first, times.last)

    async def count_old(self, keep: timedelta) -> int:
        """How many receipts are older; `MOST_COUNTED` is at least so many."""
        values = {"age": checked_age(keep), "most": MOST_COUNTED}
        (old,) = column(await self._connection.fetch(self._sql["count_old"], values))
        return int(old)

    async def clean(self, keep: timedelta, on_progress: Callable[[int], object] | None = None) -> int:
        """Delete receipts that are older, of all consumers; how many these were.

        keep: how long receipts stay; a message whose receipt is gone would be handled again, should it come again.
        on_progress: called with the number so far after each slice.
        """
        checked_age(keep)
        return await _clean(self._connection, self._sql["clean"], keep, on_progress)


def checked_age(keep: timedelta) -> float:
    """The seconds of a time that receipts may be kept for."""
    checked_keep(keep)
    return keep.total_seconds()

"""A fetcher: reads messages, no more bytes at once than is good, and no more messages than come through in time.

What is too large for a slow line, or cannot be read at all, would else be asked for in vain for ever: when a read
fails, half as many are asked for, and for some time no more than that. A message that fails alone again and again,
while the same connection answers as soon as its content is left out, is to blame itself: the server or the driver
cannot read it, or the line cannot carry it in time. It comes without its content from then on, for a while, and those
behind it come as before; each group parks it, and an operator may have it tried again. One for a process and a log.
Used by `reader` and `tail`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import Any, TypeVar

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.cause import is_bad_line, may_be_of_one
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.log.ordering.timeline import Window
from faststream_outbox._internal.log.sharing.slots import Cursor, as_filters
from faststream_outbox._internal.poison import Narrowing, Strikes
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.log_rows import ReadMessage, WaitingMessage
from faststream_outbox._internal.sql.statements import Statement, named, statements
from faststream_outbox.errors import NotReadable

STRIKES = 3
"""Lone reads of a message that may fail before it is read without its content."""
STRIKE_SECONDS = 3.0
"""How far the first and the last of them are apart at least: a disk or a server may stumble for a moment."""
KEEP_SECONDS = 600.0
"""How long its content is left out; then it is tried again."""
MOST = 100
"""So many messages that fail are kept in mind; beyond that the oldest is forgotten."""

Row = ReadMessage | WaitingMessage


@dataclass(slots=True)
class _Failing:
    """What is known of a message that could not be read."""

    identity: tuple[Any, ...]
    error: Exception
    left_out_until: float = 0.0


class Unreadable:
    """Which messages cannot be read, as far as this process knows."""

    def __init__(self) -> None:
        self._failing: dict[int, _Failing] = {}
        self._strikes: Strikes[tuple[int, tuple[Any, ...]]] = Strikes(MOST)

    def positions(self, now: float) -> list[int]:
        """Of those whose content is to be left out."""
        if not self._failing:
            return []
        for position in [at for at, failing in self._failing.items() if 0.0 < failing.left_out_until <= now]:
            self._forget(position)
        return [position for position, failing in self._failing.items() if failing.left_out_until]

    def failed(self, row: Row, error: Exception, now: float) -> bool:
        """A lone read of this message failed, although the rest of it can be read; whether it is left out now."""
        position, identity = row.position, _identity(row)
        failing = self._failing.get(position)
        if failing is None or failing.identity != identity:
            self._forget(position)
            failing = self._failing[position] = _Failing(identity, error)
            if len(self._failing) > MOST:
                self._forget(next(iter(self._failing)))
        failing.error = error
        if self._strikes.failed((position, identity), now, times=STRIKES, seconds=STRIKE_SECONDS):
            failing.left_out_until = now + KEEP_SECONDS
        return bool(failing.left_out_until)

    def were_read(self, rows: Iterable[Row]) -> bool:
        """Take note of what could be read; False if content was left out of another message under a known position.

        A server that was a little behind gives positions out again.
        """
        if not self._failing:
            return True
        are_right = True
        for row in rows:
            failing = self._failing.get(row.position)
            if failing is not None and (row.metadata is not None or failing.identity != _identity(row)):
                self._forget(row.position)
                are_right = are_right and row.metadata is not None
        return are_right

    def _forget(self, position: int) -> None:
        failing = self._failing.pop(position, None)
        if failing is not None:
            self._strikes.forget([(position, failing.identity)])

    def error_of(self, position: int) -> NotReadable:
        """Why a message cannot be read, to be kept with it."""
        failing = self._failing.get(position)
        why = f": {type(failing.error).__name__}: {failing.error}" if failing is not None else ""
        return NotReadable(
            f"not_readable: its content could not be read again and again{why}. Once it can be, let it run "
            "with Outbox.parked.retry(…), or end it with skip(…)."
        )


def _identity(row: Row) -> tuple[Any, ...]:
    return row.uri, row.event_id, row.created_at, row.transaction_id


NARROW_SECONDS = 600.0
"""How long fewer messages are read at once, after more of them did not come through."""
READ_BYTES = 8 * 1024 * 1024
"""So many bytes of messages are read at once, or one message."""

RowT = TypeVar("RowT", ReadMessage, WaitingMessage)


class Fetcher:
    """Reads messages through one connection."""

    def __init__(self, connection: DedicatedConnection, names: LogNames, emitter: Events) -> None:
        self._connection = connection
        self._fetch = statements("log", names)["fetch"]
        self._events = emitter
        self.unreadable: Unreadable = Unreadable()
        self._narrowing = Narrowing(maxsize)
        self._narrowed_at = float("-inf")

    async def read(
        self, statement: Statement, shape: type[RowT], values: Mapping[str, Any]
    ) -> tuple[Sequence[RowT], int]:
        """The rows, and how many were asked for, of how many keys."""
        loop = asyncio.get_running_loop()
        while True:
            if loop.time() - self._narrowed_at >= NARROW_SECONDS:
                self._narrowing.reset()
            limit: int = min(values["limit"], self._narrowing.limit)
            asked = {**values, "limit": limit, "unreadable": self.unreadable.positions(loop.time())}
            if "keys" in asked:
                asked["keys"] = asked["keys"][:limit]
            try:
                rows = named(shape, await self._connection.fetch(statement, asked))
            except Exception as error:
                if is_bad_line(error) or not may_be_of_one(error):
                    raise
                if limit == 1:
                    await self._examine(statement, shape, asked, error)
                    raise
                self._narrowing.failed(limit)
                self._narrowed_at = loop.time()
                self._events.emit(events.StatementFailed("reading", error))
                continue
            if self.unreadable.were_read(rows):
                return rows, limit

    def error_of(self, position: int) -> NotReadable:
        """Why a message cannot be read, to be kept with it."""
        return self.unreadable.error_of(position)

    async def _examine(
        self, statement: Statement, shape: type[RowT], asked: Mapping[str, Any], error: Exception
    ) -> None:
        """Note which message it is that cannot be read alone; those behind it are read together again in the end."""
        for row in named(shape, await self._connection.fetch(statement, {**asked, "unreadable": None})):
            if self.unreadable.failed(row, error, asyncio.get_running_loop().time()):
                self._narrowing.reset()

    async def read_window(
        self, found: Window, wanted: Mapping[str, int], limit: int
    ) -> tuple[Sequence[ReadMessage], Cursor]:
        """What is wanted of a window, and the place behind it: the window's end unless there is more than was read.

        Ends behind the message that makes it more than `READ_BYTES`.
        """
        values = {"ticks": found.ticks, "los": found.los, "his": found.his, "limit": limit, "bytes": READ_BYTES}
        rows, asked = await self.read(self._fetch, ReadMessage, values | as_filters(wanted))
        if rows and (rows[0].found == asked or rows[0].found > len(rows)):
            return rows, Cursor(rows[-1].tick, rows[-1].position)
        return rows, found.end

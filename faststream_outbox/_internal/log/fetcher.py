"""Fetches messages: no more bytes at once than is good, and no more messages than come through in time.

What is too large for a slow line, or cannot be read at all, would else be asked for in vain for ever: when a read
fails, half as many are asked for, and for some time no more than that. One message that cannot be read alone either
comes without its content (`unreadable`), and the others go on. One for a process and a log. Used by `reader` and
`tail`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.blame import is_bad_line, may_be_of_one
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.log.ordering.timeline import Window
from faststream_outbox._internal.log.sharing.spans import Cursor
from faststream_outbox._internal.log.sharing.wanted import as_filters
from faststream_outbox._internal.log.unreadable import Unreadable
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql import Statement, statements
from faststream_outbox._internal.sql.log_rows import ReadMessage, WaitingMessage
from faststream_outbox._internal.sql.rows import named

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
        self.unreadable = Unreadable()
        self._narrow = 1
        self._narrowed_at = float("-inf")

    async def read(
        self, statement: Statement, shape: type[RowT], values: Mapping[str, Any]
    ) -> tuple[Sequence[RowT], int]:
        """The rows, and how many were asked for, of how many keys."""
        loop = asyncio.get_running_loop()
        while True:
            narrow = self._narrow if loop.time() - self._narrowed_at < NARROW_SECONDS else None
            limit: int = values["limit"] if narrow is None else min(values["limit"], narrow)
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
                self._narrow, self._narrowed_at = limit // 2, loop.time()
                self._events.emit(events.ConnectionLost("reading", error))
                continue
            if self.unreadable.were_read(rows):
                return rows, limit

    async def _examine(
        self, statement: Statement, shape: type[RowT], asked: Mapping[str, Any], error: Exception
    ) -> None:
        """Note which message it is that cannot be read alone; those behind it are read together again in the end."""
        for row in named(shape, await self._connection.fetch(statement, {**asked, "unreadable": None})):
            if self.unreadable.failed(row, error, asyncio.get_running_loop().time()):
                self._narrowed_at = float("-inf")

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

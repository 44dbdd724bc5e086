"""Fetches messages: no more bytes at once than is good, and no more messages than come through in time.

Large messages on a slow line would else be asked for in vain for ever: when a read times out, half as many are asked
for, and for some time no more than that. One for a process and a log; used by `reader` and `tail`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from faststream_outbox import events
from faststream_outbox.connections.dedicated import DedicatedConnection, Row
from faststream_outbox.events import Events
from faststream_outbox.log.ordering.timeline import Window
from faststream_outbox.log.sharing.spans import Cursor
from faststream_outbox.log.sharing.wanted import as_filters
from faststream_outbox.schema.log_tables import LogNames
from faststream_outbox.sql import Statement, statements
from faststream_outbox.sql.log_rows import ReadMessage
from faststream_outbox.sql.rows import named

NARROW_SECONDS = 600.0
"""How long fewer messages are read at once, after more of them did not come through in time."""
READ_BYTES = 8 * 1024 * 1024
"""So many bytes of messages are read at once, or one message."""


class Fetcher:
    """Reads messages through one connection."""

    def __init__(self, connection: DedicatedConnection, names: LogNames, emitter: Events) -> None:
        self._connection = connection
        self._fetch = statements("log", names)["fetch"]
        self._events = emitter
        self._narrow = 1
        self._narrowed_at = float("-inf")

    async def read(self, statement: Statement, values: Mapping[str, Any]) -> tuple[Sequence[Row], int]:
        """The rows, and how many were asked for, of how many keys."""
        loop = asyncio.get_running_loop()
        while True:
            narrow = self._narrow if loop.time() - self._narrowed_at < NARROW_SECONDS else None
            limit: int = values["limit"] if narrow is None else min(values["limit"], narrow)
            asked = {**values, "limit": limit}
            if "keys" in asked:
                asked["keys"] = asked["keys"][:limit]
            try:
                return await self._connection.fetch(statement, asked), limit
            except TimeoutError as error:
                if limit == 1:
                    raise
                self._narrow, self._narrowed_at = limit // 2, loop.time()
                self._events.emit(events.ConnectionLost("reading", error))

    async def read_window(
        self, found: Window, wanted: Mapping[str, int], limit: int
    ) -> tuple[Sequence[ReadMessage], Cursor]:
        """What is wanted of a window, and the place behind it: the window's end unless there is more than was read.

        Ends behind the message that makes it more than `READ_BYTES`.
        """
        values = {"ticks": found.ticks, "los": found.los, "his": found.his, "limit": limit, "bytes": READ_BYTES}
        read, asked = await self.read(self._fetch, values | as_filters(wanted))
        rows = named(ReadMessage, read)
        if rows and (rows[0].found == asked or rows[0].found > len(rows)):
            return rows, Cursor(rows[-1].tick, rows[-1].position)
        return rows, found.end

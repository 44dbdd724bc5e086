"""Sends hints to other processes: coalesced, after the commit, never in the application's transaction.

The first hint leaves at once; those that come while it is on its way, or within the interval after
it, leave together in one NOTIFY. The interval grows while they keep coming, because workers do not sleep
then. Failure is told as an event and otherwise ignored: a hint may be lost.
"""

import asyncio
from collections.abc import Awaitable, Callable

from faststream_outbox.events import Events
from faststream_outbox.events.table import ConnectionLost
from faststream_outbox.wakeup.hint import Hint, merged, payloads

INTERVAL = 0.005
LONGEST_INTERVAL = 0.02
FLUSH_SECONDS = 1.0

Send = Callable[[str], Awaitable[object]]


class Notifier:
    """Gathers hints of one event loop and sends them through `send`, one NOTIFY at a time."""

    def __init__(self, send: Send, events: Events, sender: str, interval: float = INTERVAL) -> None:
        self._send = send
        self._sender = sender
        self._events = events
        self._interval = interval
        self._pending: dict[str | None, Hint] = {}
        self._task: asyncio.Task[None] | None = None

    def push(self, hint: Hint) -> None:
        """Send this hint soon. Must be called from the event loop's thread."""
        known = self._pending.get(hint.queue)
        self._pending[hint.queue] = hint if known is None else merged(known, hint)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain(), name="outbox notifier")

    async def _drain(self) -> None:
        interval = self._interval
        while self._pending:
            hints, self._pending = list(self._pending.values()), {}
            try:
                for payload in payloads(hints, self._sender):
                    await self._send(payload)
            except Exception as error:  # noqa: BLE001 - a hint may be lost, and is told
                self._events.emit(ConnectionLost("notify", error))
            await asyncio.sleep(interval)
            interval = min(1.5 * interval, max(self._interval, LONGEST_INTERVAL))

    async def flush(self) -> None:
        """Wait until what was pushed has been sent, but not for a server that is out of reach: a hint may be lost."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=FLUSH_SECONDS)

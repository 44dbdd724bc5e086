"""Sends hints to other processes: coalesced, after the commit, never in the application's transaction.

The first hint leaves at once; those that come while it is on its way, or within the interval after
it, leave together in one NOTIFY. The interval grows while they keep coming, because workers do not sleep
then. Failures are reported once until sending works again, and tries become ever rarer: a hint may be
lost. What was opened for sending is kept for a while, and then closed. Used by `wakeups`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.outage import Outage
from faststream_outbox._internal.wakeup.hint import Hint, Notice, merged, notices

INTERVAL = 0.005
LONGEST_INTERVAL = 0.02
FLUSH_SECONDS = 1.0
KEEP_SECONDS = 5.0

Send = Callable[[Notice], Awaitable[object]]


class Notifier:
    """Gathers hints of one event loop and sends them through `send`, one NOTIFY at a time."""

    def __init__(
        self,
        send: Send,
        events: Events,
        sender: str,
        interval: float = INTERVAL,
        *,
        kept: DedicatedConnection | None = None,
    ) -> None:
        self._send = send
        self._kept = kept
        self._sender = sender
        self._interval = interval
        self._pending: dict[str | None, Hint] = {}
        self._more = asyncio.Event()
        self._sent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage("notify", events)

    def push(self, hint: Hint) -> None:
        """Send this hint soon. Must be called from the event loop's thread."""
        known = self._pending.get(hint.queue)
        self._pending[hint.queue] = hint if known is None else merged(known, hint)
        self._sent.clear()
        self._more.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="outbox notifier")

    async def _run(self) -> None:
        # Again for what is pushed while the connection is closed.
        while self._pending:
            try:
                await self._drain()
                await self._keep()
            finally:
                if self._kept is not None:
                    await self._kept.close()

    async def _keep(self) -> None:
        while self._kept is not None and self._kept.is_open:
            self._more.clear()
            try:
                async with asyncio.timeout(KEEP_SECONDS):
                    await self._more.wait()
            except TimeoutError:
                return
            await self._drain()

    async def _drain(self) -> None:
        interval, loop = self._interval, asyncio.get_running_loop()
        while self._pending:
            hints, self._pending = list(self._pending.values()), {}
            try:
                for notice in notices(hints, self._sender):
                    await self._send(notice)
            except Exception as error:  # noqa: BLE001 - reported; a hint may be lost
                self._outage.failed(error, loop.time())
            else:
                self._outage.worked(loop.time())
            if not self._pending:
                self._sent.set()
            await asyncio.sleep(max(interval, self._outage.retry_at - loop.time()))
            interval = min(1.5 * interval, max(self._interval, LONGEST_INTERVAL))

    async def flush(self) -> None:
        """Wait until what was pushed has been sent, but not for a server that is out of reach: a hint may be lost."""
        if self._task is None or self._task.done():
            return
        sent = asyncio.ensure_future(self._sent.wait())
        await asyncio.wait([sent, self._task], timeout=FLUSH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        sent.cancel()

    async def close(self) -> None:
        """Send what was pushed, and close what was opened for sending."""
        await self.flush()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

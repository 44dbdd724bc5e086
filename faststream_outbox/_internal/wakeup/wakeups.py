"""Where publishers of this process leave their hints, and who gets them.

A hint says that there may be something to claim: a lost one costs a polling interval, never a message. `Wakeups` tells
the workers of this process at once, without a round trip, and other processes after the commit, by NOTIFY, if the mode
is `after_commit`. Safe to call from a thread without an event loop: where no workers run in this process either, others
find the rows by watching the sequence. Made by the client, called by `publish` and workers.

The `Notifier` sends: never in the application's transaction, and never slower for its commits. The first hint leaves at
once; those that come while it is on its way, or within the interval after it, leave together in one NOTIFY. The
interval grows while they keep coming, because workers do not sleep then. Failures are reported once until sending works
again, and tries become ever rarer. What was opened for sending is kept for a while, and then closed.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import greenlet_spawn

from faststream_outbox._internal.connections.dedicated import Connection, DedicatedConnection
from faststream_outbox._internal.connections.identity import Identity
from faststream_outbox._internal.connections.opening import Opened
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.outage import Outage
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.service import called
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox._internal.wakeup.hint import NAMED, Hint, Notice, merged, notices
from faststream_outbox.errors import InvalidOption

NotifyMode = Literal["after_commit", "in_transaction", "off"]
"""When other processes hear of what was published: after the commit, by it, or never."""
NOTIFY_MODES: tuple[NotifyMode, ...] = ("after_commit", "in_transaction", "off")


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
        kept: Connection | None = None,
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
        loop = asyncio.get_running_loop()
        while self._kept is not None and self._kept.is_open:
            self._more.clear()
            if not await called(self._more, loop.time() + KEEP_SECONDS):
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


Receiver = Callable[[Hint], None]

_PLACE = re.compile(r"\$\d+")


class Wakeups:
    """Hands hints to the claimers of this process and, after the commit, to other processes."""

    def __init__(
        self,
        engine: AsyncEngine,
        names: Names,
        events: Events,
        mode: NotifyMode = "after_commit",
        identity: Identity | None = None,
    ) -> None:
        if mode not in NOTIFY_MODES:
            msg = f"notify must be one of {NOTIFY_MODES}, not {mode!r}."
            raise InvalidOption(msg)
        self.mode = mode
        self.sender: str = uuid4().hex
        """Names us in the hints that we send, so that our own listener can ignore them."""
        self._names = names
        self._engine = engine
        self._identity = identity
        self._sql = statements("publish", names)
        self._events = events
        self._receivers: list[tuple[asyncio.AbstractEventLoop, Receiver]] = []
        self._shared: Connection | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._notifiers: dict[asyncio.AbstractEventLoop, Notifier] = {}
        self._own: DedicatedConnection | None = None

    def attach(self, receiver: Receiver, connection: Connection) -> Callable[[], None]:
        """Tell `receiver` of every hint, on this event loop, and send through `connection`; returns what undoes it."""
        loop = asyncio.get_running_loop()
        self._receivers.append((loop, receiver))
        self._shared, self._home = connection, loop

        def detach() -> None:
            self._receivers.remove((loop, receiver))
            if self._shared is connection:
                self._shared = None

        return detach

    def tell(self, hint: Hint) -> None:
        """The messages that the hint speaks of have been committed."""
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        for loop, receiver in self._receivers:
            if loop is here:
                receiver(hint)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(receiver, hint)
        # Connections belong to an event loop: that of the workers, or else the first that published.
        if self._home is None or self._home.is_closed():
            self._home = here
        home = self._home
        if self.mode != "after_commit" or home is None:
            return
        if home is here:
            self.notifier(home).push(hint)
        elif self._shared is not None:
            home.call_soon_threadsafe(self.notifier(home).push, hint)

    def notifier(self, loop: asyncio.AbstractEventLoop) -> Notifier:
        """The notifier of an event loop."""
        notifier = self._notifiers.get(loop)
        if notifier is None:
            for known in [known for known in self._notifiers if known.is_closed()]:
                del self._notifiers[known]
            # A pool that keeps no connections, or has one for everybody, cannot lend one: then we keep one of our own
            # while there is something to send.
            lends = isinstance(self._engine.sync_engine.pool, QueuePool)
            self._own = None if lends else DedicatedConnection(self._engine, identity=self._identity, role="notify")
            notifier = self._notifiers[loop] = Notifier(self._send, self._events, self.sender, kept=self._own)
        return notifier

    def values(self, notice: Notice) -> dict[str, Any]:
        """Of the statement `notify_both`, which sends a notice."""
        names = self._names
        return {
            "channel": names.channel,
            "payload": notice.payload,
            "names": notice.names,
            "opening": NAMED,
            "former_index": names.former_index,
        }

    async def _send(self, notice: Notice) -> None:
        values = self.values(notice)
        kept = self._shared or self._own
        if kept is not None:
            await kept.fetch(self._sql["notify_both"], values)
            return
        # A process that only publishes has no connection of ours: borrow one from its pool for a moment, and the
        # driver's own of it, because a transaction of SQLAlchemy's costs more than the publishing itself.
        borrowed = await greenlet_spawn(self._engine.sync_engine.raw_connection)
        try:
            await self._send_on(borrowed.driver_connection, values)
        except BaseException:
            # At once: the pool would try a goodbye that psycopg cannot say from here, and leave the session in its
            # transaction.
            Opened.of(borrowed).end()
            raise
        await greenlet_spawn(borrowed.close)

    async def close(self) -> None:
        """Send what is left to send, and close what was opened for it."""
        notifier = self._notifiers.get(asyncio.get_running_loop())
        if notifier is not None:
            await notifier.close()

    async def _send_on(self, driver: Any, values: dict[str, Any]) -> None:
        statement = self._sql["notify_both"]
        if self._engine.dialect.driver == "asyncpg":
            # As plain text, which prepares nothing: a pooler may stand in between.
            literals = {f"${place}": _literal(values[name]) for place, name in enumerate(statement.parameters, 1)}
            await driver.execute(_PLACE.sub(lambda match: literals[match[0]], statement.dollar))
        else:
            await driver.execute(statement.pyformat, values, prepare=False)
            await driver.commit()


def _literal(value: str | list[str]) -> str:
    if isinstance(value, list):
        return f"array[{', '.join(map(_literal, value))}]"
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"

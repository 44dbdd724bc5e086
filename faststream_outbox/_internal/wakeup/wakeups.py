"""Where publishers of this process leave their hints, and who gets them.

Claimers in the same process hear at once, without a round trip; other processes hear by NOTIFY, if
the mode is `after_commit`. Safe to call from a thread without an event loop: where no workers run in this process
either, other processes find the rows by watching the sequence. Made by the client, called by `publish` and workers.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import QueuePool
from sqlalchemy.util import greenlet_spawn

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.connections.identity import Identity
from faststream_outbox._internal.connections.opening import Opened
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.wakeup import NOTIFY_MODES, NotifyMode
from faststream_outbox._internal.wakeup.hint import NAMED, Hint, Notice
from faststream_outbox._internal.wakeup.notifier import Notifier
from faststream_outbox.errors import InvalidOption

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
        self.sender = uuid4().hex
        """Names us in the hints that we send, so that our own listener can ignore them."""
        self._names = names
        self._engine = engine
        self._identity = identity
        self._sql = statements("publish", names)
        self._events = events
        self._receivers: list[tuple[asyncio.AbstractEventLoop, Receiver]] = []
        self._shared: DedicatedConnection | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._notifiers: dict[asyncio.AbstractEventLoop, Notifier] = {}
        self._own: DedicatedConnection | None = None

    def attach(self, receiver: Receiver, connection: DedicatedConnection) -> Callable[[], None]:
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

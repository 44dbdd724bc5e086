"""Hears other processes: one LISTEN connection per process and table.

Reconnects at once when the connection ends, notices one that died silently by asking now and then,
and tests itself after opening, because a pooler in transaction mode accepts LISTEN and delivers
nothing. While it is not hearing, polling fills in. What a payload means is known to its `Receiver`: `HintReceiver`
for queues, the log's `Channel` for topics. Runs as a service of the client.
"""

import asyncio
import contextlib
from time import monotonic
from typing import Protocol

from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.address import Address
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.connections.identity import Identity
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.types import ListenerDeaf, ListenerLost, ListenerReady
from faststream_outbox._internal.schema.names import AnyNames
from faststream_outbox._internal.service import FIRST_PAUSE, Pulse, retrying
from faststream_outbox._internal.sql.statements import statements

PROBE_INTERVAL = 15.0
"""After so many seconds of silence the server is asked whether it is still there."""
HEARING_TEST = 3.0
"""Seconds that a NOTIFY of our own may take to come back."""
DEAF_PAUSE = 60.0
"""Seconds until the next try where it does not."""

_TEST = "outbox-hearing-test:"


class Receiver(Protocol):
    """Knows what the payloads of a channel mean."""

    def hear(self, pid: int, payload: str, /) -> None:
        """The server process `pid` has sent this."""

    def missed(self) -> None:
        """Something may have been sent while nobody listened."""


class Listener:
    """Hears payloads on one channel and hands them to a receiver."""

    def __init__(
        self,
        connection: DedicatedConnection,
        names: AnyNames,
        events: Events,
        receiver: Receiver,
        sender: str,
    ) -> None:
        self._connection = connection
        self._sender = sender
        self._channel = names.channel
        self._sql = statements("publish", names)
        self._control = statements("control", names)
        self._events = events
        self._receiver = receiver
        self._lost = asyncio.Event()
        self._heard = asyncio.Event()
        self.pulse: Pulse = Pulse()
        self.is_hearing: bool = False
        self.deaf_since: float | None = None
        """Since when it does not hear, on the clock of `monotonic`; None while it does, or does not run."""

    async def run(self) -> None:
        """Listen until cancelled."""
        self.deaf_since = monotonic()
        try:
            while True:
                self.pulse.beat()
                if await retrying(self._opened, self._not_opened):
                    await self._hear_until_lost()
                else:
                    await self._be_deaf()
        finally:
            self.is_hearing, self.deaf_since = False, None
            await self._connection.close()

    async def _opened(self) -> bool:
        try:
            return await self._open()
        except Exception:
            await self._connection.close()
            raise

    def _not_opened(self, error: Exception, failures: int) -> None:
        self.pulse.beat()
        self.is_hearing = False
        self._events.emit(ListenerLost(self._channel, error))

    async def _hear_until_lost(self) -> None:
        error: Exception | None = None
        try:
            await self._hear()
        except Exception as problem:  # noqa: BLE001 - reported, and opened again
            error = problem
        self.is_hearing, self.deaf_since = False, monotonic()
        self._events.emit(ListenerLost(self._channel, error))
        await self._connection.close()
        if error is not None:
            await asyncio.sleep(FIRST_PAUSE)

    async def _open(self) -> bool:
        self._lost.clear()
        self._heard.clear()
        await self._connection.listen(self._channel, self._take, self._lost.set)
        await self._send_test()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARING_TEST):
                while not self._heard.is_set():
                    await self._wait_for_input()
        self.is_hearing = self._heard.is_set()
        if self.is_hearing:
            self.deaf_since = None
            self._events.emit(ListenerReady(self._channel))
            self._receiver.missed()
        return self.is_hearing

    async def _send_test(self) -> None:
        # A pooler may lend the same server connection again, which always hears itself: another one must speak.
        tester = self._connection.sibling() if self._connection.pooled else self._connection
        try:
            values = {"channel": self._channel, "payload": _TEST + self._sender}
            await tester.fetch(self._sql["notify"], values)
        finally:
            if tester is not self._connection:
                await tester.close()

    async def _hear(self) -> None:
        while not self._lost.is_set():
            self.pulse.beat()
            try:
                async with asyncio.timeout(PROBE_INTERVAL):
                    await self._wait_for_input()
            except TimeoutError:
                await self._connection.fetch(self._control["ping"], {})

    async def _wait_for_input(self) -> None:
        lost = asyncio.ensure_future(self._lost.wait())
        heard = asyncio.ensure_future(self._heard.wait())
        readable = asyncio.ensure_future(self._connection.wait_readable())
        waiting = [lost, readable] if self._heard.is_set() else [lost, readable, heard]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (lost, heard, readable):
                task.cancel()
            await asyncio.wait([lost, heard, readable])
        if not readable.cancelled():
            readable.result()
            # The driver reads notifications only while it runs a statement.
            await self._connection.fetch(self._control["ping"], {})

    async def _be_deaf(self) -> None:
        self._events.emit(ListenerDeaf(self._channel))
        await self._connection.close()
        await asyncio.sleep(DEAF_PAUSE)

    def _take(self, pid: int, payload: str) -> None:
        if payload.startswith(_TEST):
            if payload == _TEST + self._sender:
                self._heard.set()
            return
        self._receiver.hear(pid, payload)


def listening(engine: AsyncEngine, dsn: str | None, identity: Identity) -> DedicatedConnection:
    """The connection for LISTEN: by the engine's settings, to its address or to `listen_dsn`."""
    address = None if dsn is None else Address.of(dsn)
    return DedicatedConnection(engine, address=address, identity=identity, role="listen")

"""Hears hints from other processes: one LISTEN connection per process and table.

Reconnects at once when the connection ends, notices one that died silently by asking now and then,
and tests itself after opening, because a pooler in transaction mode accepts LISTEN and delivers
nothing. While it is not hearing, polling fills in. Runs as a service of the client.
"""

import asyncio
import contextlib
from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.events import Events
from faststream_outbox.events.table import ListenerDeaf, ListenerLost, ListenerReady
from faststream_outbox.schema.names import AnyNames
from faststream_outbox.service import pause_after
from faststream_outbox.sql import statements
from faststream_outbox.sql.address import Address
from faststream_outbox.sql.wire import Wire
from faststream_outbox.wakeup.hint import NAMED, Hint, parsed

PROBE_INTERVAL = 15.0
HEARING_TEST = 3.0
DEAF_PAUSE = 60.0

_TEST = "outbox-hearing-test:"


class Listener:
    """Receives payloads on one channel and hands their hints to `receive`."""

    def __init__(
        self, wire: Wire, names: AnyNames, events: Events, receive: Callable[[Hint], None], sender: str
    ) -> None:
        self._wire = wire
        self._sender = sender
        self._channel = names.channel
        self._sql = statements("publish", names)
        self._control = statements("control", names)
        self._events = events
        self._receive = receive
        self._lost = asyncio.Event()
        self._heard = asyncio.Event()
        self._names_to_come: set[tuple[int, str | None]] = set()
        self.is_hearing = False

    async def run(self) -> None:
        """Listen until cancelled."""
        failures = 0
        try:
            while True:
                error: BaseException | None = None
                try:
                    if not await self._open():
                        await self._be_deaf()
                        continue
                    failures = 0
                    await self._hear()
                except (TimeoutError, OSError) as problem:
                    error = problem
                except Exception as problem:  # noqa: BLE001 - told, and tried again
                    error = problem
                self.is_hearing = False
                self._events.emit(ListenerLost(self._channel, error))
                await self._wire.close()
                if error is not None:
                    failures += 1
                    await asyncio.sleep(pause_after(failures))
        finally:
            self.is_hearing = False
            await self._wire.close()

    async def _open(self) -> bool:
        self._lost.clear()
        self._heard.clear()
        await self._wire.listen(self._channel, self._take, self._lost.set)
        await self._send_test()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARING_TEST):
                while not self._heard.is_set():
                    await self._wait_for_input()
        self.is_hearing = self._heard.is_set()
        if self.is_hearing:
            self._events.emit(ListenerReady(self._channel))
            # What was sent while nobody listened is unknown: look everywhere once.
            self._receive(Hint(None))
        return self.is_hearing

    async def _send_test(self) -> None:
        # A pooler may lend the same server connection again, which always hears itself: another one must speak.
        tester = self._wire.sibling() if self._wire.pooled else self._wire
        try:
            values = {"channel": self._channel, "payload": _TEST + self._sender}
            await tester.fetch(self._sql["notify"], values)
        finally:
            if tester is not self._wire:
                await tester.close()

    async def _hear(self) -> None:
        while not self._lost.is_set():
            try:
                async with asyncio.timeout(PROBE_INTERVAL):
                    await self._wait_for_input()
            except TimeoutError:
                await self._wire.fetch(self._control["ping"], {})

    async def _wait_for_input(self) -> None:
        lost = asyncio.ensure_future(self._lost.wait())
        heard = asyncio.ensure_future(self._heard.wait())
        readable = asyncio.ensure_future(self._wire.wait_readable())
        waiting = [lost, readable] if self._heard.is_set() else [lost, readable, heard]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (lost, heard, readable):
                task.cancel()
            await asyncio.wait([lost, heard, readable])
        if not readable.cancelled():
            readable.result()
            # The driver looks for notifications only while it runs a statement.
            await self._wire.fetch(self._control["ping"], {})

    async def _be_deaf(self) -> None:
        self._events.emit(ListenerDeaf(self._channel))
        await self._wire.close()
        await asyncio.sleep(DEAF_PAUSE)

    def _take(self, pid: int, payload: str) -> None:
        if payload.startswith(_TEST):
            if payload == _TEST + self._sender:
                self._heard.set()
            return
        if (pid, payload) in self._names_to_come:
            # For workers of 0.19: we have just heard more of it.
            self._names_to_come.remove((pid, payload))
            return
        sender, hints = parsed(payload)
        # They come in the same transaction, so that nobody else's payload comes in between.
        self._names_to_come = {(pid, hint.queue) for hint in hints} if payload.startswith(NAMED) else set()
        if sender != self._sender:
            for hint in hints:
                self._receive(hint)


def listening(engine: AsyncEngine, dsn: str | None) -> Wire:
    """The connection for LISTEN: by the engine's settings, to its address or to `listen_dsn`."""
    return Wire(engine, address=None if dsn is None else Address.of(dsn))

"""The log's client: everything that the readers of one process share for one log.

Four connections at most, however many groups and readers: one reads and settles, one sequences, one
listens, and one is for what operators ask. They open on first use; the loops (sequencing, renewing,
listening) run while a consumer does. The application's engine is never closed. Built by `Outbox` and by
the broker.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox.errors import WrongEventLoop
from faststream_outbox.events import Events
from faststream_outbox.events import table as told
from faststream_outbox.events.journal import keep_journal
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.holding import Group
from faststream_outbox.log.options import Start
from faststream_outbox.log.reader import Reader
from faststream_outbox.log.sequencer import Sequencer, Ticker
from faststream_outbox.log.settling import Settling
from faststream_outbox.log.spans import BEGINNING, Cursor
from faststream_outbox.log.timeline import Timeline
from faststream_outbox.outcomes.failure import Renderer, saying
from faststream_outbox.outcomes.outcome import Dead, Outcome, Retry
from faststream_outbox.schema.log_tables import LogNames, LogTables
from faststream_outbox.schema.names import schema_map_of
from faststream_outbox.service import Service
from faststream_outbox.sql import Statement, statements
from faststream_outbox.sql.isolation import Isolation
from faststream_outbox.sql.wire import Wire
from faststream_outbox.wakeup.hint import Hint
from faststream_outbox.wakeup.listener import Listener, listening

logger = logging.getLogger("faststream_outbox")

NARROW_SECONDS = 600.0
"""How long fewer messages are read at once, after more of them did not come through in time."""
CHANGED = "changed"
"""What is sent when members or waiting messages of a group have changed, in place of a tick."""
LONGEST_NUMBER = 19


class LogClient:
    """Connections, loops and wake-ups of one log in one process."""

    def __init__(
        self,
        engine: AsyncEngine,
        tables: LogTables,
        *,
        events: Events | None = None,
        listen: bool = True,
        listen_dsn: str | None = None,
        last_exception_renderer: Renderer | None = None,
        log: logging.Logger | None = logger,
        wires: Callable[[], Wire] | None = None,
    ) -> None:
        self.engine = engine
        self.tables = tables
        self.names = LogNames.of(tables, schema_map_of(engine))
        self.renderer = last_exception_renderer
        self.events = events or Events()
        if events is None and log is not None:
            keep_journal(self.events, log, saying(last_exception_renderer))
        make = wires or (lambda: Wire(engine))
        self.wire = make()
        self._tick_wire = make()
        self.operator_wire = make()
        """For whatever scans, counts or deletes: none of it stands in front of what delivers."""
        self._listen_wire = (wires() if wires else listening(engine, listen_dsn)) if listen else None
        self.timeline = Timeline(self.names)
        self.sequencer = Sequencer(self._tick_wire, self.names, self.timeline, self.events)
        self.isolation = Isolation()
        """Of the transactions of handlers."""
        self.had_waited: set[Group] = set()
        """Groups whose last batch was of messages that had waited."""
        self._assemble()

    def _assemble(self) -> None:
        """Make what belongs to one event loop; in another one it is made anew."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ticker = Ticker(self.sequencer, self.timeline, self._wake, self.events)
        self._narrow = 1
        self._narrowed_at = float("-inf")
        self._readers: list[Reader] = []
        self.ending: set[asyncio.Task[None]] = set()
        """Workers that are on their way out."""
        services: list[tuple[str, Callable[[], Any]]] = [
            ("outbox ticker", self.ticker.run),
            ("outbox keeper", self._keep),
        ]
        if self._listen_wire is not None:
            self.listener = Listener(self._listen_wire, self.names, self.events, self._heard, uuid4().hex)
            services.append(("outbox log listener", self.listener.run))
        self._services = [Service(name, loop, self._crashed) for name, loop in services]
        self._changing = asyncio.Lock()
        self._suspicion = asyncio.Lock()

    def _move(self) -> None:
        """Belong to the running event loop: the one before may have ended without a stop."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        if self._loop is not None:
            if self._readers and self._loop.is_running():
                msg = "Readers of this log run in another event loop. Make an Outbox or a broker for each loop."
                raise WrongEventLoop(msg)
            self._assemble()
        self._loop = loop

    @property
    def is_healthy(self) -> bool:
        """Whether every loop that consumers need is alive; also so without consumers."""
        if not self._readers:
            return True
        return all(service.is_running for service in self._services) and all(one.is_alive() for one in self._readers)

    @property
    def groups(self) -> set[Group]:
        """Groups that are read in this process."""
        return {reader.group for reader in self._readers}

    async def ask(self, name: str, values: dict[str, Any]) -> Sequence[Any]:
        """Run one of the statements about positions, for an operator."""
        return await self.operator_wire.fetch(statements("position", self.names)[name], values)

    async def attach(self, reader: Reader) -> None:
        """Serve this reader; the first one starts the loops."""
        self._move()
        async with self._changing:
            self._readers.append(reader)
            for service in self._services:
                service.start()

    async def detach(self, reader: Reader) -> None:
        """Serve this reader no more; the last one ends the loops."""
        self._move()
        async with self._changing:
            if reader in self._readers:
                self._readers.remove(reader)
            if not self._readers:
                for service in self._services:
                    await service.stop()

    async def close(self) -> None:
        """Close the connections, once workers that are stopping have stopped; they open again on next use."""
        self._move()
        if self.ending:
            await asyncio.wait(list(self.ending))
        async with self._changing:
            for service in self._services:
                await service.stop()
            self._readers.clear()
            await self.wire.close()
            await self._tick_wire.close()
            await self.operator_wire.close()

    async def place_of(self, start: Start) -> Cursor:
        """Where a group begins that has never read."""
        if start == "earliest":
            return BEGINNING
        if start == "latest":
            return await self.latest()
        await self.sequencer.catch_up()
        rows = await self.wire.fetch(statements("position", self.names)["place_before"], {"moment": start})
        return Cursor(*rows[0]) if rows else BEGINNING

    async def latest(self) -> Cursor:
        """The place behind everything that is committed now."""
        await self.sequencer.catch_up()
        rows = await self.wire.fetch(statements("position", self.names)["last_place"], {})
        return Cursor(*rows[0]) if rows else BEGINNING

    async def read(self, statement: Statement, values: Mapping[str, Any]) -> tuple[Sequence[Any], int]:
        """Messages, and how many were asked for, of how many keys: half as many while they do not come through in time.

        Large ones on a slow line would else be asked for in vain for ever. For some time no more are asked for.
        """
        loop = asyncio.get_running_loop()
        while True:
            narrow = self._narrow if loop.time() - self._narrowed_at < NARROW_SECONDS else None
            limit: int = values["limit"] if narrow is None else min(values["limit"], narrow)
            asked = {**values, "limit": limit}
            if "keys" in asked:
                asked["keys"] = asked["keys"][:limit]
            try:
                return await self.wire.fetch(statement, asked), limit
            except TimeoutError as error:
                if limit == 1:
                    raise
                self._narrow, self._narrowed_at = limit // 2, loop.time()
                self.events.emit(told.ConnectionLost("reading", error))

    async def call(self) -> None:
        """Tell readers, here and in other processes, that members or waiting messages have changed."""
        sql = statements("group", self.names)
        await self.wire.fetch(sql["call"], {"channel": self.names.channel, "payload": CHANGED})
        self._unsettle()

    def suspicion(self) -> asyncio.Lock:
        """Held while a message runs that may have ended a process: whoever dies now, it is known with which."""
        self._move()
        return self._suspicion

    def open_session(self) -> AsyncSession:
        """A session for a transactional handler, which cannot be used any more once it is closed."""
        return AsyncSession(self.engine, expire_on_commit=False, close_resets_only=False)

    def published(self, _: Hint) -> None:
        """Messages of this process were committed."""
        self.ticker.poke()

    def tell(self, reader: Settling, ended: Sequence[tuple[Delivery, Outcome, float]]) -> None:
        """Tell what became of messages, now that it is written."""
        events = self.events
        for delivery, outcome, duration in ended:
            delivery.is_running = False
            message = (reader.group.uri, reader.name, delivery.position, delivery.deliveries_count)
            match outcome:
                case Retry(delay=delay, error=error):
                    events.emit(told.Retried(*message, duration, delay or 0.0, error))
                case Dead(reason=reason, error=error):
                    events.emit(told.Died(*message, duration, reason, True, error))
                case _:
                    if told.Handled in events:
                        events.emit(told.Handled(*message, duration))

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake.set()

    def _unsettle(self) -> None:
        for reader in self._readers:
            reader.is_unsettled = True
            reader.wake.set()

    def _heard(self, hint: Hint) -> None:
        payload = hint.queue
        if payload is not None and payload.isdecimal() and len(payload) <= LONGEST_NUMBER:
            self.ticker.heard(int(payload))
        else:
            self._unsettle()

    async def _keep(self) -> None:
        """Renew every lease and membership, a few times in its life."""
        while True:
            ttl = min((reader.options.lease_ttl_seconds for reader in self._readers), default=15.0)
            await asyncio.sleep(ttl / 4)
            for reader in list(self._readers):
                try:
                    await reader.keep()
                except Exception as error:  # noqa: BLE001 - told, and tried again well before the lease ends
                    self.events.emit(told.ConnectionLost("renewing", error))

    def _crashed(self, name: str, error: BaseException) -> None:
        self.events.emit(told.LoopCrashed(name, error))

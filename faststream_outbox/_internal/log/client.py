"""The log's client: everything that the members of one process share for one log.

Four connections at most, however many groups and members: one reads and settles, one sequences, one listens, and one is
for what operators ask. They open on first use; the loops (sequencing, renewing, listening) run while a member is
attached. The application's engine is never closed. It knows members, and nobody who reads or writes for one: readers
and settlers take from it what they need. Built by `Outbox` and by the broker.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar
from uuid import uuid4
from weakref import WeakValueDictionary

from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.cause import is_locked, is_refused
from faststream_outbox._internal.connections.dedicated import LOCK_PATIENCE, DedicatedConnection, Row
from faststream_outbox._internal.connections.identity import worker_id_of
from faststream_outbox._internal.engine import EngineClient
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.event_log import Log
from faststream_outbox._internal.events.outage import Outage
from faststream_outbox._internal.janitor import Retention
from faststream_outbox._internal.log.admin.retention import Upkeep
from faststream_outbox._internal.log.fetcher import Fetcher
from faststream_outbox._internal.log.member import Member
from faststream_outbox._internal.log.options import ReadOptions, Start
from faststream_outbox._internal.log.ordering.sequencer import Sequencer, Ticker
from faststream_outbox._internal.log.ordering.timeline import Timeline
from faststream_outbox._internal.log.renewer import Renewing, beat
from faststream_outbox._internal.log.sharing.calls import CHANGED, Calls, Channel, changed
from faststream_outbox._internal.log.sharing.leases import SlotLeases
from faststream_outbox._internal.log.sharing.slots import BEGINNING, Cursor, Group, Slots
from faststream_outbox._internal.log.tail import Tail
from faststream_outbox._internal.outcomes.failure import Renderer
from faststream_outbox._internal.schema.log_tables import LogNames, LogTables
from faststream_outbox._internal.schema.names import schema_map_of
from faststream_outbox._internal.service import Pulse, pause_after, retrying
from faststream_outbox._internal.sql.statements import Statement, statements
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox._internal.wakeup.listener import Listener, listening

logger = logging.getLogger("faststream_outbox")

MOST_REFUSALS = 8


class LogClient(EngineClient):
    """Connections, loops and wake-ups of one log in one process."""

    ELSEWHERE: ClassVar[str] = (
        "Readers of this log run in another event loop. Make an Outbox or a broker for each loop."
    )

    def __init__(
        self,
        engine: AsyncEngine,
        tables: LogTables,
        *,
        events: Events | None = None,
        listen: bool = True,
        listen_dsn: str | None = None,
        last_exception_renderer: Renderer | None = None,
        log: Log | None = logger,
        retention: Retention | None = None,
    ) -> None:
        # Whoever gives events writes of them where it wants to.
        super().__init__(engine, events=events, log=log if events is None else None, renderer=last_exception_renderer)
        self.tables = tables
        self.names: LogNames = LogNames.of(tables, schema_map_of(engine))
        self.connection: DedicatedConnection = self._dedicated("read", lock_seconds=LOCK_PATIENCE)
        self._tick_connection = self._dedicated("tick")
        self.operator_connection: DedicatedConnection = self._dedicated("operate")
        """For whatever scans, counts or deletes: none of it stands in front of what delivers."""
        self._retention = retention
        self._janitor_connections = (self._dedicated("guard"), self._dedicated("clean"))
        self._listen_connection: DedicatedConnection | None = None
        if listen:
            self._listen_connection = listening(engine, listen_dsn, self.identity)
        self.timeline: Timeline = Timeline(self.names)
        self.sequencer: Sequencer = Sequencer(self._tick_connection, self.names, self.timeline, self.events)
        self.had_waited: set[Group] = set()
        """Groups whose last batch was of messages that had waited."""
        self._assemble()

    def _assemble(self) -> None:
        super()._assemble()
        self.fetcher: Fetcher = Fetcher(self.connection, self.names, self.events)
        self.reading: Outage = Outage("reading", self.events, tells_each=True)
        """Of members that read, and of whoever reads for those that wait."""
        self._settling = Outage("settling", self.events, tells_each=True)
        self._renewals = Outage("renewing", self.events, tells_each=True)
        self._members: list[Member] = []
        self._by_group: dict[str, set[Member]] = {}
        self.tail: Tail = Tail(self.connection, self.names, self.timeline, self.fetcher, self.events, self.reading)
        self.ticker: Ticker = Ticker(self.sequencer, self.timeline, self.tail.hear, self.events)
        self.renewing: Renewing = Renewing(self.connection, self.names)
        self.calls: Calls = Calls(uuid4().hex, self._by_group, self.unsettle)
        self.ending: set[asyncio.Task[None]] = set()
        """Workers that are on their way out."""
        self.leaving: set[asyncio.Timeout] = set()
        """How long the members may still take that give their slots back at the moment."""
        self.outages: list[Outage] = [self.ticker.outage, self.reading, self._settling, self._renewals]
        """What its loops and members cannot do at the moment."""
        self._renewer_pulse = Pulse()
        self._serve("outbox ticker", self.ticker.run, self.ticker.pulse)
        self._serve("outbox log renewer", self._renew, self._renewer_pulse)
        self._serve("outbox tail reader", self.tail.run, self.tail.pulse)
        self._serve("outbox progress writer", self.tail.write, self.tail.pulse_of_writing)
        self.listener: Listener | None = None
        if self._listen_connection is not None:
            self.channel: Channel = Channel(self.ticker.heard, self.calls.hear)
            sender = self.calls.sender
            self.listener = Listener(self._listen_connection, self.names, self.events, self.channel, sender)
            self._serve("outbox log listener", self.listener.run, self.listener.pulse)
        if self._retention is not None:
            upkeep = Upkeep(self, self._retention, *self._janitor_connections)
            self._serve("outbox log janitor", upkeep.janitor.run)
        self._sharing: WeakValueDictionary[Group, asyncio.Lock] = WeakValueDictionary()
        self._suspicion = asyncio.Lock()

    def _is_busy(self) -> bool:
        return bool(self._members)

    @property
    def is_healthy(self) -> bool:
        """Whether every loop that consumers need is alive; also so without consumers."""
        if not self._members:
            return True
        return all(service.is_running for service in self._services) and all(one.is_alive() for one in self._members)

    @property
    def members(self) -> Sequence[Member]:
        """The members that it serves."""
        return tuple(self._members)

    @property
    def connections(self) -> Sequence[DedicatedConnection]:
        """The connections whose answers show that the server is there."""
        return self.connection, self._tick_connection

    @property
    def groups(self) -> set[Group]:
        """Groups that are read in this process."""
        return {member.group for member in self._members}

    async def ask(self, name: str, values: dict[str, Any]) -> Sequence[Row]:
        """Run one of the statements about positions, for an operator."""
        return await self.operator_connection.fetch(statements("position", self.names)[name], values)

    def new_member(self, group: Group, options: ReadOptions, *, fixed: Slots | None = None, name: str = "") -> Member:
        """A member of a group, which is served once it is attached."""
        start, me, ttl = partial(self.place_of, options.start), self.identity.token(), options.lease_ttl_seconds
        leases = SlotLeases(group, self.connection, self.names, ttl, start, me, fixed)
        leases.in_flight = options.batch_size
        return Member(group, options, leases, name)

    async def attach(self, member: Member) -> None:
        """Serve this member; the first one starts the loops."""
        self._move()
        if worker_id_of(member.leases.me) != self.identity.worker_id:
            # Made in another event loop, or before the process forked: a child is a member of its own.
            member.leases.me = self.identity.token()
        async with self._changing:
            self._members.append(member)
            self._by_group.setdefault(member.group.digest, set()).add(member)
            for service in self._services:
                service.start()

    async def detach(self, member: Member) -> None:
        """Serve this member no more; the last one ends the loops."""
        self._move()
        async with self._changing:
            if member in self._members:
                self._members.remove(member)
                self._by_group[member.group.digest].discard(member)
                if not self._by_group[member.group.digest]:
                    del self._by_group[member.group.digest]
            if not self._members:
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
            self._members.clear()
            self._by_group.clear()
            await self.connection.close()
            await self._tick_connection.close()
            await self.operator_connection.close()

    async def place_of(self, start: Start) -> Cursor:
        """Where a group begins that has never read."""
        if start == "earliest":
            return BEGINNING
        if start == "latest":
            return await self.latest()
        await self.sequencer.catch_up()
        rows = await self.connection.fetch(statements("position", self.names)["place_before"], {"moment": start})
        return Cursor(*next(iter(rows), BEGINNING))

    async def latest(self) -> Cursor:
        """The place behind everything that is committed now."""
        await self.sequencer.catch_up()
        rows = await self.connection.fetch(statements("position", self.names)["last_place"], {})
        return Cursor(*next(iter(rows), BEGINNING))

    async def persist(
        self,
        statement: Statement,
        values: Mapping[str, Any],
        lock_seconds: float | None,
        *,
        is_stopping: Callable[[], bool],
    ) -> Sequence[Row]:
        """Run a statement as often as it takes, on fresh connections: what was handled would be handled again."""

        async def once() -> Sequence[Row]:
            try:
                if lock_seconds is None:
                    return await self.connection.fetch(statement, values)
                return (await self.connection.fetch_each([(statement, values)], lock_seconds=lock_seconds))[0]
            except Exception as error:
                if lock_seconds is not None and is_locked(error):
                    return []
                raise

        def failed(error: Exception, failures: int) -> None:
            if failures > MOST_REFUSALS and (is_stopping() or is_refused(error)):
                raise error
            self._settling.failed(error, asyncio.get_running_loop().time(), who)

        who = object()
        try:
            rows = await retrying(once, failed)
        except BaseException:
            self._settling.left(who)
            raise
        self._settling.worked(asyncio.get_running_loop().time(), who)
        return rows

    async def enter(self, members: Sequence[Member]) -> None:
        """Have members be of their groups, as far as the database answers; each tries again once it runs."""
        try:
            new = await beat(self.connection, [member.leases for member in members])
            if new:
                await self.call(*{member.group for member in members if member.leases.me in new})
            for member in members:
                await self.begin(member)
        except Exception as error:  # noqa: BLE001 - reported, and tried again
            self.events.emit(events.StatementFailed("joining", error))

    async def begin(self, member: Member) -> None:
        """Give a member's group its place, if that is not where the log begins."""
        if member.options.start != "earliest":
            # Makes the group: what is published from now on lies behind its place.
            await member.leases.seen()

    async def call(self, *groups: Group) -> None:
        """Tell readers of these groups, or of all, in every process, that members or waiting messages have changed."""
        payloads = [self.call_of(group) for group in groups] or [CHANGED]
        sql = statements("group", self.names)
        await self.connection.fetch(sql["call"], {"channel": self.names.channel, "payloads": payloads})
        for group in groups or (None,):
            self.unsettle(group.digest if group else None)

    def call_of(self, group: Group) -> str:
        """What is sent when members of a group have changed, which this process does not heed itself."""
        return changed(group, self.calls.sender)

    def sharing(self, group: Group) -> asyncio.Lock:
        """Held while a member takes and gives: others of the process would cut the same spans, most of them in vain."""
        lock = self._sharing.get(group)
        if lock is None:
            lock = self._sharing[group] = asyncio.Lock()
        return lock

    def suspicion(self) -> asyncio.Lock:
        """Held while a message runs that may have ended a process: whoever dies now, it is known with which."""
        self._move()
        return self._suspicion

    def published(self, _: Hint) -> None:
        """Messages of this process were committed."""
        self.ticker.wake()

    def unsettle(self, digest: str | None) -> None:
        """Slots of a group, or of all, may have to change hands."""
        for member in self._members if digest is None else self._by_group.get(digest, ()):
            member.unsettle()

    async def _renew(self) -> None:
        """Renew every lease and membership, a few times in its life."""
        failures = 0
        while True:
            # By hand and not by `retrying`: how long a pause may be changes with the members that come and go.
            self._renewer_pulse.beat()
            ttl = min((member.options.lease_ttl_seconds for member in self._members), default=15.0)
            await asyncio.sleep(ttl / 4 if not failures else min(ttl / 4, pause_after(failures)))
            try:
                await self.renewing.renew(list(self._members))
                failures = 0
                self._renewals.worked(asyncio.get_running_loop().time())
            except Exception as error:  # noqa: BLE001 - reported, and tried again well before the lease ends
                failures += 1
                self._renewals.failed(error, asyncio.get_running_loop().time())

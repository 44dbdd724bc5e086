"""The sequencer: turns newly visible positions into ticks, so that the log has one order for everybody.

Any process may tick, and a lock on the head lets one at a time. A number that is drawn but not visible
becomes a gap; a gap blocks nothing and is looked at again when a transaction that could own it has ended.
See `sql/tick.sql` for the argument. `Ticker` polls the sequence behind the positions: reading it touches
no table. Run by the client; whoever must see what is committed now uses `catch_up`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.outage import Outage
from faststream_outbox._internal.log.ordering.timeline import Timeline, open_gaps, repair
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.service import Pulse, called, retrying
from faststream_outbox._internal.sql.log_rows import Database, MadeTick, ProgressRow
from faststream_outbox._internal.sql.statements import Statement, column, named, statements

TICK_LIMIT = 10_000
"""Positions in one tick at most, so that a backlog is sequenced in portions."""
ISLAND_LIMIT = 1_000
"""Runs of positions in one tick at most: what readers keep of a tick grows with them."""
RANGE_LIMIT = 20_000
"""Gaps that one tick looks into at most, of those that may have filled."""
SWEEP_LIMIT = 100
"""Rows of gaps that one tick forgets at most; each has up to a thousand."""
OWNER_SECONDS = 1.0
"""How old a gap is before its possible owners are searched for, and how often that is done."""
BUSY_INTERVAL = 0.005
IDLE_INTERVAL = 0.025
BUSY_SECONDS = 5.0
LONGEST_WAIT = 0.25
OLD_GAP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far numbers were drawn and sequenced."""

    drawn: int
    high: int
    tick: int
    oldest_gap: datetime | None
    stray: int | None = None
    """The last message behind what is sequenced, where no number was drawn for it."""
    is_ours: bool = True
    """Whether the head was written here, and agrees with the ticks."""

    @property
    def is_copied(self) -> bool:
        """Whether numbers would be drawn again: a copy of the database that did not carry its sequences."""
        return self.drawn < self.high or self.stray is not None

    @property
    def is_behind(self) -> bool:
        """Whether a tick might find something."""
        return self.drawn > self.high or self.oldest_gap is not None


class Sequencer:
    """Makes ticks, each in a transaction of its own."""

    def __init__(self, connection: DedicatedConnection, names: LogNames, timeline: Timeline, events: Events) -> None:
        self._connection = connection
        self._names = names
        self._sql = statements("tick", names)
        self._channel = names.channel
        self._timeline = timeline
        self._events = events
        self._place: str | None = None
        self._openings = -1
        self.is_ticking: bool = False
        """Whether a tick of ours is under way: its wake-up may be heard before its commit is answered."""
        self.has_more: bool = False
        """Whether the last tick of ours has left something for the next one."""
        self.has_to_sweep: bool = False
        """Whether it has left gaps that are to be forgotten."""
        self.log: str = names.places()["log"]

    async def progress(self, *, make_head: bool = True) -> Progress:
        """See whether there is something to sequence."""
        progress, has_head = await self._progress()
        if progress.is_copied or not (progress.is_ours or (not has_head and not make_head)):
            # New numbers would lie behind every cursor, or the last ones do.
            await self._repair()
            progress, _ = await self._progress()
        self._timeline.went_back(progress.tick)
        self._timeline.seen(progress.tick)
        return progress

    async def _progress(self) -> tuple[Progress, bool]:
        rows = await self._connection.fetch(self._sql["progress"], {"place": await self._where()})
        (row,) = named(ProgressRow, rows)
        found = Progress(row.drawn, row.high or 0, row.tick or 0, row.oldest_gap, row.stray, row.is_ours)
        return found, row.high is not None

    async def _where(self) -> str:
        """The place that the connection leads to; asked for again when it was opened anew."""
        if self._place is None or self._openings != self._connection.openings:
            (database,) = named(Database, await self._connection.fetch(self._sql["database"], {}))
            server = "?"
            if database.may_know_server:
                (server,) = column(await self._connection.fetch(self._sql["server"], {}))
            self._place, self._openings = f"{server}:{database.oid}:", self._connection.openings
        return self._place

    async def _repair(self) -> None:
        """Make the head, or make it anew, and move the sequence behind it."""
        for before, after in await repair(self._connection, self._sql, await self._where()):
            self._events.emit(events.SequenceAdvanced(self.log, before, after))

    async def tick(self, *, wait: bool = False, owners: bool = False) -> int | None:
        """Make a tick of what is newly visible: how many positions; None if somebody else is about it.

        owners: forget gaps whose owners have ended although other transactions are open; that reads all locks.
        """
        names = ["wait_for_head" if wait else "lock_head", *(["owners"] if owners else []), "tick"]
        values = {
            "limit": TICK_LIMIT,
            "islands": ISLAND_LIMIT,
            "ranges": RANGE_LIMIT,
            "sweep": SWEEP_LIMIT,
            "channel": self._channel,
            "place": await self._where(),
        }
        steps = [(self._sql[name], values) for name in names]
        self.has_more = False
        results = await self._send(steps)
        if len(results) == len(steps) and not results[-1]:
            await self._repair()
            results = await self._send(steps)
        if len(results) < len(steps) or not results[-1]:
            return None
        (made,) = named(MadeTick, results[-1])
        self.has_more, self.has_to_sweep = made.has_more, made.has_to_sweep
        if made.positions:
            self._timeline.seen(made.tick)
            self._events.emit(events.Ticked(self.log, made.tick, made.positions, made.late))
        return made.positions

    async def _send(self, steps: Sequence[tuple[Statement, Mapping[str, Any]]]) -> list[Sequence[Any]]:
        self.is_ticking = True
        try:
            return await self._connection.fetch_each(steps)
        finally:
            self.is_ticking = False

    async def catch_up(self) -> None:
        """Sequence everything that is visible now."""
        progress = await self.progress()
        if progress.is_behind:
            await self.tick(wait=True)
            while self.has_more:
                await self.tick(wait=True)

    async def old_gaps(self, age: float = OLD_GAP_SECONDS) -> list[dict[str, Any]]:
        """Gaps that have been open for so many seconds, and the sessions that may hold them open."""
        return [gap._asdict() for gap in await open_gaps(self._connection, self._names, age=age)]


@dataclass(slots=True)
class Pace:
    """When to ask for progress next: soon while something happens, seldom while nothing does. Pure bookkeeping."""

    active_at: float = float("-inf")
    empty: int = 0
    in_vain: int = -1
    again_at: float = float("-inf")
    led_at: float = float("-inf")

    def found(self, now: float) -> None:
        """A tick had something in it."""
        self.active_at, self.empty, self.in_vain = now, 0, -1

    def missed(self, now: float, drawn: int) -> None:
        """Numbers were drawn, but nothing of them is visible yet."""
        self.empty = self.empty + 1 if drawn == self.in_vain else 1
        self.in_vain = drawn
        # A rolled back end of the sequence, or a long transaction: nothing may come of it for hours.
        self.again_at = now + min(LONGEST_WAIT, self.empty * BUSY_INTERVAL)

    def is_worth_it(self, drawn: int, now: float) -> bool:
        """Whether to tick: something was drawn since the last one found nothing, or that was some time ago."""
        return drawn != self.in_vain or now >= self.again_at

    def heard(self, now: float) -> None:
        """Another process made a tick: it is faster than we are."""
        self.led_at = now

    def pause(self, now: float) -> float:
        """Seconds until progress is asked for again."""
        if now - self.led_at < BUSY_SECONDS / 5:
            return 2 * IDLE_INTERVAL
        return BUSY_INTERVAL if now - self.active_at < BUSY_SECONDS else IDLE_INTERVAL


class Ticker:
    """Asks for progress and ticks until it is cancelled; `woken` is called whenever a new tick exists."""

    def __init__(self, sequencer: Sequencer, timeline: Timeline, woken: Callable[[], None], events: Events) -> None:
        self._sequencer = sequencer
        self._timeline = timeline
        self._woken = woken
        self._events = events
        self._asked = asyncio.Event()
        self._warned_at = float("-inf")
        self._warned_age: float | None = None
        """How old the gap was that was reported; None while there is none."""
        self.outage: Outage = Outage("sequencing", events)
        self.pulse: Pulse = Pulse()
        self._owners_at = float("-inf")
        self.pace: Pace = Pace()

    def wake(self) -> None:
        """Ask for progress at once: something was committed in this process."""
        self._asked.set()

    def heard(self, tick: int) -> None:
        """A tick exists that perhaps another process made."""
        if tick > self._timeline.head:
            self._timeline.hint(tick)
            if not self._sequencer.is_ticking:
                self.pace.heard(asyncio.get_running_loop().time())
            self._woken()

    async def run(self) -> None:
        """Tick until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await retrying(self._once, self._failed)
            self.outage.worked(loop.time())
            self.pulse.beat()
            now = loop.time()
            await called(self._asked, now + self.pace.pause(now))

    def _failed(self, error: Exception, _: int) -> None:
        self.pulse.beat()
        self.outage.failed(error, asyncio.get_running_loop().time())

    async def _once(self) -> None:
        self._asked.clear()
        now = asyncio.get_running_loop().time()
        known = self._timeline.head
        progress = await self._sequencer.progress()
        if progress.oldest_gap is None:
            self._owners_at = now
        if progress.is_behind and self.pace.is_worth_it(progress.drawn, now):
            found = count = await self._sequencer.tick(owners=self._are_owners_due(progress, now))
            while count is not None and self._sequencer.has_more:
                self._woken()
                self.pulse.beat()
                count = await self._sequencer.tick()
                found = (found or 0) + (count or 0)
            if found:
                self.pace.found(now)
            elif count == 0 and not self._sequencer.has_to_sweep:
                self.pace.missed(now, progress.drawn)
            await self._warn(progress, now)
        self._end_warning(progress)
        if self._timeline.head > known:
            self._woken()

    def _are_owners_due(self, progress: Progress, now: float) -> bool:
        """Whether some gap has been open for so long that something else than its owner may keep it open."""
        if now - self._owners_at < OWNER_SECONDS and not self._sequencer.has_to_sweep:
            return False
        self._owners_at = now
        return progress.oldest_gap is not None

    async def _warn(self, progress: Progress, now: float) -> None:
        gap = progress.oldest_gap
        if gap is None or now - self._warned_at < OLD_GAP_SECONDS:
            return
        age = (datetime.now(UTC) - gap).total_seconds()
        if age > OLD_GAP_SECONDS:
            self._warned_at, self._warned_age = now, age
            holders = await self._sequencer.old_gaps()
            sessions = {f"{gap['pid'] or gap['prepared']} ({gap['user']}@{gap['database']})" for gap in holders}
            self._events.emit(events.GapOld(self._sequencer.log, age, tuple(sorted(sessions))))

    def _end_warning(self, progress: Progress) -> None:
        """Tell that the old gap is gone, if one was reported."""
        if self._warned_age is None:
            return
        gap = progress.oldest_gap
        age = 0.0 if gap is None else (datetime.now(UTC) - gap).total_seconds()
        if age > OLD_GAP_SECONDS:
            self._warned_age = max(self._warned_age, age)
        else:
            self._events.emit(events.GapClosed(self._sequencer.log, self._warned_age))
            self._warned_at, self._warned_age = float("-inf"), None

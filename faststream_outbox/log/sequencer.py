"""The sequencer: turns newly visible positions into ticks, so that the log has one order for everybody.

Any process may tick, and a lock on the head lets one at a time. A number that is drawn but not visible
becomes a gap; a gap blocks nothing and is looked at again when a transaction that could own it has ended.
See `sql/tick.sql` for the argument. `Ticker` polls the sequence behind the positions: reading it touches
no table. Used by readers (when they are at the end of the log) and run by the client.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from faststream_outbox.events import Events
from faststream_outbox.events import table as told
from faststream_outbox.log.timeline import Timeline
from faststream_outbox.schema.log_tables import LogNames
from faststream_outbox.service import pause_after
from faststream_outbox.sql import statements
from faststream_outbox.sql.wire import Wire

TICK_LIMIT = 10_000
"""Positions in one tick at most, so that a backlog is sequenced in portions."""
BUSY_INTERVAL = 0.005
IDLE_INTERVAL = 0.025
BUSY_SECONDS = 5.0
LONGEST_WAIT = 0.25
OLD_GAP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Look:
    """How far numbers were drawn and sequenced."""

    drawn: int
    high: int
    tick: int
    oldest_gap: datetime | None
    stray: int | None = None
    """The last message behind what is sequenced, where no number was drawn for it."""

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

    def __init__(self, wire: Wire, names: LogNames, timeline: Timeline, events: Events) -> None:
        self._wire = wire
        self._sql = statements("tick", names)
        self._values = {"limit": TICK_LIMIT, "channel": names.channel}
        self._timeline = timeline
        self._events = events
        self.is_ticking = False
        """Whether a tick of ours is under way: its wake-up may be heard before its commit is answered."""
        self.log = names.places()["log"]

    async def look(self, *, make_head: bool = True) -> Look:
        """See whether there is something to sequence."""
        look, has_head = await self._look()
        if make_head and not has_head:
            await self._wire.fetch(self._sql["make_head"], {})
            look, _ = await self._look()
        if look.is_copied:
            # New numbers would lie behind every cursor.
            nothing: dict[str, Any] = {}
            steps = [(self._sql[name], nothing) for name in ("wait_for_head", "advance_sequence")]
            for before, after in (await self._wire.fetch_each(steps))[1]:
                self._events.emit(told.SequenceAdvanced(self.log, before, after))
            look, _ = await self._look()
        self._timeline.went_back(look.tick)
        self._timeline.seen(look.tick)
        return look

    async def _look(self) -> tuple[Look, bool]:
        drawn, high, tick, oldest_gap, stray = (await self._wire.fetch(self._sql["look"], {}))[0]
        return Look(drawn, high or 0, tick or 0, oldest_gap, stray), high is not None

    async def tick(self, *, wait: bool = False) -> int | None:
        """Make a tick of what is newly visible: how many positions; None if somebody else is about it."""
        lock = self._sql["wait_for_head" if wait else "lock_head"]
        self.is_ticking = True
        try:
            results = await self._wire.fetch_each([(lock, {}), (self._sql["tick"], self._values)])
        finally:
            self.is_ticking = False
        if len(results) < 2:
            return None
        if not results[1]:
            await self._wire.fetch(self._sql["make_head"], {})
            return await self.tick(wait=wait)
        number, count, _, late, _ = results[1][0]
        if count:
            self._timeline.seen(number)
            self._events.emit(told.Ticked(self.log, number, count, late))
        return int(count)

    async def catch_up(self) -> None:
        """Sequence everything that is visible now."""
        look = await self.look()
        count: int | None = TICK_LIMIT if look.is_behind else 0
        while count is None or count >= TICK_LIMIT:
            count = await self.tick(wait=True)

    async def old_gaps(self, age: float = OLD_GAP_SECONDS) -> list[dict[str, Any]]:
        """Gaps that have been open for so many seconds, and the sessions that may hold them open."""
        names = ("lo", "hi", "since", "pid", "database", "user", "application", "state", "began_at", "xid")
        rows = await self._wire.fetch(self._sql["open_gaps"], {"age": age})
        return [dict(zip(names, row, strict=True)) for row in rows]


@dataclass(slots=True)
class Pace:
    """When to look next: soon while something happens, seldom while nothing does. Pure bookkeeping."""

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
        """Seconds until the next look."""
        if now - self.led_at < BUSY_SECONDS / 5:
            return 2 * IDLE_INTERVAL
        return BUSY_INTERVAL if now - self.active_at < BUSY_SECONDS else IDLE_INTERVAL


class Ticker:
    """Looks and ticks until it is cancelled; `woken` is called whenever a new tick exists."""

    def __init__(self, sequencer: Sequencer, timeline: Timeline, woken: Callable[[], None], events: Events) -> None:
        self._sequencer = sequencer
        self._timeline = timeline
        self._woken = woken
        self._events = events
        self._poked = asyncio.Event()
        self._warned_at = float("-inf")
        self.pace = Pace()

    def poke(self) -> None:
        """Look at once: something was committed in this process."""
        self._poked.set()

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
        failures = 0
        while True:
            self._poked.clear()
            try:
                await self._once(loop.time())
                failures = 0
            except Exception as error:  # noqa: BLE001 - told, and tried again
                failures += 1
                if failures == 1:
                    self._events.emit(told.ConnectionLost("sequencing", error))
                await asyncio.sleep(pause_after(failures))
                continue
            try:
                async with asyncio.timeout(self.pace.pause(loop.time())):
                    await self._poked.wait()
            except TimeoutError:
                pass

    async def _once(self, now: float) -> None:
        known = self._timeline.head
        look = await self._sequencer.look()
        if look.is_behind and self.pace.is_worth_it(look.drawn, now):
            count = await self._sequencer.tick()
            while count is not None and count >= TICK_LIMIT:
                self._woken()
                count = await self._sequencer.tick()
            if count:
                self.pace.found(now)
            elif count == 0:
                self.pace.missed(now, look.drawn)
            await self._warn(look, now)
        if self._timeline.head > known:
            self._woken()

    async def _warn(self, look: Look, now: float) -> None:
        gap = look.oldest_gap
        if gap is None or now - self._warned_at < OLD_GAP_SECONDS:
            return
        age = (datetime.now(UTC) - gap).total_seconds()
        if age > OLD_GAP_SECONDS:
            self._warned_at = now
            holders = await self._sequencer.old_gaps()
            sessions = {f"{gap['pid']} ({gap['user']}@{gap['database']})" for gap in holders if gap["pid"]}
            self._events.emit(told.GapOld(self._sequencer.log, age, tuple(sorted(sessions))))

"""The timeline: ticks in order, and windows of them to read.

A tick never changes once it exists, so every reader of the process shares what was read of them. The
order of the log is (tick, position): the same for every group and for every replay. A window is a list
of ranges of positions in that order; it ends where a cursor may stand. Used by readers.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from faststream_outbox.log.spans import Cursor
from faststream_outbox.schema.log_tables import LogNames
from faststream_outbox.sql import statements
from faststream_outbox.sql.wire import Wire

KEPT = 2000
READ_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Tick:
    """Positions that became visible together, as ranges in order."""

    number: int
    ranges: tuple[tuple[int, int], ...]
    at: datetime

    @property
    def last(self) -> Cursor:
        """The place behind the whole tick."""
        return Cursor(self.number, self.ranges[-1][1])


@dataclass(frozen=True, slots=True)
class Window:
    """Ranges of positions to read, and the cursor for when all of them are handled."""

    ticks: list[int]
    los: list[int]
    his: list[int]
    end: Cursor
    stamps: dict[int, datetime]
    """When each of the ticks was made: what they are known by, beside their numbers."""


def window(ticks: Iterable[Tick], after: Cursor, size: int, until: Cursor | None = None) -> Window | None:
    """The next `size` positions after a cursor, but not beyond `until`; None if there are none."""
    found = Window([], [], [], after, {})
    end = after
    left = size
    for tick in ticks:
        for lo, hi in tick.ranges:
            if tick.number == after.tick:
                lo = max(lo, after.position + 1)  # noqa: PLW2901 - the range without what was read
            if until is not None and tick.number == until.tick:
                hi = min(hi, until.position)  # noqa: PLW2901 - the range without what comes later
            if lo > hi or left <= 0 or tick.number < after.tick or (until is not None and tick.number > until.tick):
                continue
            taken = min(hi, lo + left - 1)
            found.ticks.append(tick.number)
            found.los.append(lo)
            found.his.append(taken)
            found.stamps[tick.number] = tick.at
            left -= taken - lo + 1
            end = Cursor(tick.number, taken)
        if left <= 0 or (until is not None and tick.number >= until.tick):
            break
    return replace(found, end=end) if found.los else None


class Timeline:
    """Ticks of one log, as far as this process has read them; in order and without a hole."""

    def __init__(self, names: LogNames) -> None:
        self._sql = statements("tick", names)
        self._ticks: list[Tick] = []
        self._openings = 0
        self.head = 0
        """The newest tick that is known to exist."""
        self._hinted = 0
        """The newest tick that somebody spoke of; anybody may."""

    def seen(self, tick: int) -> None:
        """A tick of this number exists."""
        self.head = max(self.head, tick)

    def hint(self, tick: int) -> None:
        """Somebody says that a tick of this number exists: worth one look."""
        self._hinted = max(self._hinted, tick)

    def may_follow(self, cursor: Cursor) -> bool:
        """Whether something may lie behind the cursor, as far as this process has heard."""
        if self._hinted > self.head:
            return True
        if self._ticks and self._ticks[-1].number == self.head:
            return self._ticks[-1].last > cursor
        return self.head >= cursor.tick

    def went_back(self, tick: int) -> None:
        """The newest tick is this one: what was read beyond it is not true any more."""
        if self._ticks and self._ticks[-1].number > tick:
            self._ticks, self.head = [], tick

    async def after(self, wire: Wire, cursor: Cursor) -> Sequence[Tick]:
        """Ticks from the cursor's own on, as many as are known; reads more where none lies behind the cursor."""
        if self._openings != wire.openings:
            # Perhaps another server, with fewer ticks or other ones: a standby that was behind, a restored backup.
            self._ticks, self._openings = [], wire.openings
        known = self._from(cursor)
        # The cursor's own tick must be there: the cursor may stand in the middle of it.
        begins = bool(known) and known[0].number == (cursor.tick or 1)
        if begins and (known[-1].number > cursor.tick or known[-1].last > cursor):
            return known
        values = {"tick": cursor.tick, "limit": READ_AT_ONCE}
        hinted = self._hinted
        rows = await wire.fetch(self._sql["ticks_after"], values)
        if len(rows) < READ_AT_ONCE and self._hinted == hinted:
            # This was the look: what is there was seen.
            self._hinted = 0
        read = [Tick(row[0], tuple(zip(row[1], row[2], strict=True)), row[4]) for row in rows]
        if read:
            self.seen(read[-1].number)
            self._keep(read)
        return read

    def _from(self, cursor: Cursor) -> list[Tick]:
        start = bisect_left(self._ticks, cursor.tick, key=lambda tick: tick.number)
        return self._ticks[start : start + READ_AT_ONCE]

    def _keep(self, read: list[Tick]) -> None:
        if self._ticks and self._ticks[0].number <= read[0].number <= self._ticks[-1].number + 1:
            fresh = [tick for tick in read if tick.number > self._ticks[-1].number]
            self._ticks += fresh
        else:
            # Another part of the log: what is kept must not have a hole.
            self._ticks = list(read)
        if len(self._ticks) > 2 * KEPT:
            del self._ticks[: len(self._ticks) - KEPT]

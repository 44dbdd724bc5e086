"""The timeline: ticks in order, and windows of them to read.

A tick never changes once it exists, so every reader of the process shares what was read of them. The order of the log
is (tick, position): the same for every group and for every replay. A window is a list of ranges of positions in that
order; it ends where a cursor may stand. What is kept is bounded by ranges as well as by ticks: where half of all
transactions are rolled back, a tick has thousands. Used by `reader`, `tail` and `sequencer`.

Open gaps, with the transactions that may own them, are asked for by the sequencer, when it warns of an old one, and by
operators.

`repair` puts right the head of a copy that came without its sequence, or of data that was restored beside another log.
Publishers look at nothing but the sequence. Where it has gone back, they draw numbers that lie behind every cursor, or
that belonged to messages which retention has deleted. So nobody ticks until it is known which numbers hold a message
that is in a tick; all others become gaps again, and what is there is in the next tick. Nothing is skipped, and what is
in a tick does not come again. Each step is bounded, however long the log is. Called by the sequencer.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.sharing.slots import Cursor
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.log_rows import AdvancedSequence, KeptRanges, TickRow
from faststream_outbox._internal.sql.overview_rows import OpenGap
from faststream_outbox._internal.sql.statements import Statements, column, named, statements

KEPT = 2000
KEPT_RANGES = 100_000
"""Ranges of all ticks that are kept, at 16 bytes each."""
READ_AT_ONCE = 200
POSITIONS_AT_ONCE = 100_000
"""Positions in the ticks of one read: none of them has more ranges."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Positions that became visible together, as ranges in order."""

    number: int
    lows: Sequence[int]
    highs: Sequence[int]
    at: datetime

    @classmethod
    def of(cls, number: int, lows: Iterable[int], highs: Iterable[int], at: datetime) -> "Tick":
        """A tick that takes little room."""
        return cls(number, array("q", lows), array("q", highs), at)

    @property
    def last(self) -> Cursor:
        """The place behind the whole tick."""
        return Cursor(self.number, self.highs[-1])

    def between(self, first: int, last: int | None) -> Iterator[tuple[int, int]]:
        """Its ranges from one position on, up to another."""
        for place in range(bisect_left(self.highs, first), len(self.highs)):
            lo, hi = max(first, self.lows[place]), self.highs[place]
            if last is not None and hi > last:
                if lo <= last:
                    yield lo, last
                return
            yield lo, hi


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
        if left <= 0 or (until is not None and tick.number > until.tick):
            break
        if tick.number < after.tick:
            continue
        first = after.position + 1 if tick.number == after.tick else tick.lows[0]
        last = until.position if until is not None and tick.number == until.tick else None
        for lo, hi in tick.between(first, last):
            if left <= 0:
                break
            taken = min(hi, lo + left - 1)
            found.ticks.append(tick.number)
            found.los.append(lo)
            found.his.append(taken)
            found.stamps[tick.number] = tick.at
            left -= taken - lo + 1
            end = Cursor(tick.number, taken)
    return replace(found, end=end) if found.los else None


class Timeline:
    """Ticks of one log, as far as this process has read them; in order and without a hole."""

    def __init__(self, names: LogNames) -> None:
        self._sql = statements("log", names)
        self._ticks: list[Tick] = []
        self._ranges = 0
        self._openings = 0
        self.head: int = 0
        """The newest tick that is known to exist."""
        self._hinted = 0
        """The newest tick that somebody spoke of; anybody may."""
        self.generation: int = 0
        """Counts how often the ticks may have become others: then no place that is not written is worth anything."""

    @property
    def last(self) -> Tick | None:
        """The newest tick that was read."""
        return self._ticks[-1] if self._ticks else None

    def seen(self, tick: int) -> None:
        """A tick of this number exists."""
        self.head = max(self.head, tick)

    def hint(self, tick: int) -> None:
        """Somebody says that a tick of this number exists: worth one read."""
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
            self._forget()
            self.head = tick

    def of(self, connection: DedicatedConnection) -> int:
        """The generation, by what is known of the connection now."""
        if self._openings != connection.openings:
            # Perhaps another server, with fewer ticks or other ones: a standby that was behind, a restored backup.
            self._forget()
            self._openings = connection.openings
        return self.generation

    async def after(self, connection: DedicatedConnection, cursor: Cursor) -> Sequence[Tick]:
        """Ticks from the cursor's own on, as many as are known; reads more where none lies behind the cursor."""
        self.of(connection)
        known = self._from(cursor)
        # The cursor's own tick must be there: the cursor may stand in the middle of it.
        begins = bool(known) and known[0].number == (cursor.tick or 1)
        if begins and (known[-1].number > cursor.tick or known[-1].last > cursor):
            return known
        values = {"tick": cursor.tick, "limit": READ_AT_ONCE, "positions": POSITIONS_AT_ONCE}
        hinted = self._hinted
        rows = named(TickRow, await connection.fetch(self._sql["ticks_after"], values))
        self.of(connection)
        behind = sum(row.positions for row in rows if row.tick > cursor.tick)
        if len(rows) < READ_AT_ONCE and behind < POSITIONS_AT_ONCE and self._hinted == hinted:
            # This was the read that the hint was worth: what is there was seen.
            self._hinted = 0
        read = [Tick.of(row.tick, row.lows, row.highs, row.at) for row in rows]
        if read:
            self.seen(read[-1].number)
            self._keep(read)
        return read

    def _from(self, cursor: Cursor) -> list[Tick]:
        start = bisect_left(self._ticks, cursor.tick, key=lambda tick: tick.number)
        return self._ticks[start : start + READ_AT_ONCE]

    def _forget(self) -> None:
        self._ticks, self._ranges = [], 0
        self.generation += 1

    def _keep(self, read: list[Tick]) -> None:
        if self._are_others(read):
            # Behind a pooler the server may have become another one without our noticing.
            self._forget()
        if self._ticks and self._ticks[0].number <= read[0].number <= self._ticks[-1].number + 1:
            fresh = [tick for tick in read if tick.number > self._ticks[-1].number]
        else:
            # Another part of the log: what is kept must not have a hole.
            self._ticks, self._ranges = [], 0
            fresh = read
        self._ticks += fresh
        self._ranges += sum(len(tick.lows) for tick in fresh)
        if len(self._ticks) > 2 * KEPT or self._ranges > 2 * KEPT_RANGES:
            self._shorten()

    def _are_others(self, read: list[Tick]) -> bool:
        start = bisect_left(self._ticks, read[0].number, key=lambda tick: tick.number)
        return any(
            known.number == tick.number and known.at != tick.at
            for known, tick in zip(self._ticks[start:], read, strict=False)
        )

    def _shorten(self) -> None:
        """Leave out the oldest; the newest stays, however much is in it."""
        ranges, first = 0, len(self._ticks) - 1
        for place in range(len(self._ticks) - 1, -1, -1):
            ranges += len(self._ticks[place].lows)
            if len(self._ticks) - place > KEPT or (ranges > KEPT_RANGES and place < first):
                break
            first = place
        del self._ticks[:first]
        self._ranges = sum(len(tick.lows) for tick in self._ticks)


LIMIT = 100


async def open_gaps(
    connection: DedicatedConnection, names: LogNames, *, age: float = 0.0, limit: int = LIMIT, beyond: bool = False
) -> list[OpenGap]:
    """Gaps that are open for so many seconds, oldest first, each as often as there are transactions that may own it.

    beyond: also the numbers behind the last that is sequenced, if this role may know how far they were drawn.
    """
    sql = statements("overview_log", names)
    drawn = None
    if beyond and column(await connection.fetch(sql["may_see_drawn"], {})) == [True]:
        (drawn,) = column(await connection.fetch(sql["drawn"], {}))
    values = {"age": age, "limit": limit, "drawn": drawn}
    return named(OpenGap, await connection.fetch(sql["open_gaps"], values))


SLICE = 100_000
"""About how many messages one statement reads."""

Ranges = Sequence[tuple[int, int]]


def holes(kept: Iterable[tuple[int, int]], high: int) -> Ranges:
    """The numbers from 1 to `high` that are in none of these ranges; as ranges, in order."""
    found = []
    free = 1
    for lo, hi in sorted(kept):
        if lo > free:
            found.append((free, min(lo - 1, high)))
        free = max(free, hi + 1)
        if free > high:
            break
    if free <= high:
        found.append((free, high))
    return [(lo, hi) for lo, hi in found if lo <= hi]


async def repair(connection: DedicatedConnection, sql: Statements, place: str) -> Sequence[AdvancedSequence]:
    """Make the head, or make it anew; from where to where the sequence was moved, if it had to be."""
    here = {"place": place}
    steps = [(sql[name], here) for name in ("wait_for_head", "suspend", "advance_sequence")]
    results = await connection.fetch_each(steps)
    if len(results) < len(steps):
        # Somebody else has repaired it.
        return []
    _, suspended, advanced = results
    (high,) = column(suspended)
    kept: list[tuple[int, int]] = []
    tick = 0
    while True:
        (found,) = named(KeptRanges, await connection.fetch(sql["kept"], {"tick": tick, "limit": SLICE}))
        if found.last is None:
            break
        kept += zip(found.lows, found.highs, strict=True)
        tick = found.last
    gaps = holes(kept, high)
    values = {**here, "lows": [lo for lo, _ in gaps], "highs": [hi for _, hi in gaps]}
    await connection.fetch_each([(sql["wait_for_head"], {}), (sql["repair"], values)])
    return named(AdvancedSequence, advanced)

"""Spans: runs of neighbouring slots with one cursor and one lease, and who should hold which.

A group begins as one span of all slots. Members cut spans to share them and join neighbours that have
come equally far, so there are about as many rows as members, however many slots. Pure: decides, and
`leases` carries out. There is no leader: every member decides for itself, and epochs keep it safe.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from faststream_outbox._internal.log.sharing.slots import SLOTS


class Cursor(NamedTuple):
    """A place in the log: everything up to this position of this tick is behind it."""

    tick: int
    position: int


BEGINNING = Cursor(0, 0)


@dataclass(frozen=True, slots=True)
class Span:
    """Slots `lo` to `hi`, read up to `cursor`, held or seen under `epoch`."""

    lo: int
    hi: int
    cursor: Cursor
    epoch: int
    written: Cursor | None = None
    """Where the database has the cursor, if that is elsewhere."""
    stamp: datetime | None = None
    """When the cursor's tick was made, as it was read: another tick may have its number on a server that was behind."""

    @property
    def known(self) -> Cursor:
        """Where the database has the cursor, as far as is known."""
        return self.cursor if self.written is None else self.written

    @property
    def size(self) -> int:
        """How many slots it has."""
        return self.hi - self.lo + 1

    def has_any(self, slots: Iterable[int]) -> bool:
        """Whether one of these slots is in it."""
        return any(self.lo <= slot <= self.hi for slot in slots)

    def at(self, cursor: Cursor, stamp: datetime | None) -> "Span":
        """The same slots, read up to another place, in a tick of this stamp."""
        return replace(self, cursor=cursor, written=self.known, stamp=stamp)

    def settled(self) -> "Span":
        """The same, now that its cursor is written."""
        return replace(self, written=None)


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """A span as somebody else may hold it."""

    span: Span
    owner: UUID | None
    is_free: bool


Slots = tuple[int, int]
"""The first and the last slot of a run."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a member should give up and what it should take; each lies within one span."""

    give: tuple[Slots, ...] = ()
    take: tuple[Slots, ...] = ()


def fair_plan(seen: Iterable[SeenSpan], me: UUID, members: int) -> Plan:
    """What a member of a group of so many should do, to hold its share and no more."""
    spans = list(seen)
    mine = [each.span for each in spans if each.owner == me]
    size = sum(span.size for span in mine)
    least, more = divmod(SLOTS, max(1, members))
    held: Counter[UUID] = Counter()
    for each in spans:
        if each.owner is not None and not each.is_free:
            held[each.owner] += each.span.size
    # So many members hold one slot more than the rest: who has it keeps it, the first by name if they are too many.
    richer = sum(1 for owner, slots in held.items() if owner != me and slots > least and (size <= least or owner < me))
    room = least + int(richer < more) - size
    if room < 0:
        return Plan(give=tuple(_smallest_first(mine, -room)))
    free = [each.span for each in spans if each.is_free and each.owner != me]
    return Plan(take=tuple(_smallest_first(free, room)))


def _smallest_first(spans: Sequence[Span], slots: int) -> Iterable[Slots]:
    """Runs of exactly so many slots, or of all there are: small spans whole, then the end of a larger one."""
    for span in sorted(spans, key=lambda span: span.size):
        if slots <= 0:
            return
        size = min(span.size, slots)
        yield span.hi - size + 1, span.hi
        slots -= size


def fixed_plan(seen: Iterable[SeenSpan], me: UUID, lo: int, hi: int) -> Plan:
    """What a reader of certain slots should do: take what is free of them."""
    take = (
        (max(each.span.lo, lo), min(each.span.hi, hi))
        for each in seen
        if each.is_free and each.owner != me and each.span.lo <= hi and each.span.hi >= lo
    )
    return Plan(take=tuple(take))


def joinable(spans: Iterable[Span]) -> list[list[Span]]:
    """Runs of neighbours that have come equally far, of at least two."""
    runs: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: span.lo):
        last = runs[-1][-1] if runs else None
        if last is not None and last.hi + 1 == span.lo and last.cursor == span.cursor:
            runs[-1].append(span)
        else:
            runs.append([span])
    return [run for run in runs if len(run) > 1]


def furthest_behind(spans: Iterable[Span]) -> tuple[list[Span], Cursor | None]:
    """The spans that are furthest behind, and how far they may go until they meet the next ones."""
    cursors = sorted({span.cursor for span in spans})
    behind = [span for span in spans if cursors and span.cursor == cursors[0]]
    return behind, cursors[1] if len(cursors) > 1 else None

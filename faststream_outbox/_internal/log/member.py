"""A member of a group: the slots that it holds, the keys that wait in them, and how far it has come.

State; of its own it asks nothing of the database. Whoever serves all members of a process knows them by this and by
nothing else: the client starts and wakes them, `tail` reads for those that wait, `renewer` keeps their leases alive.
One `Settler` writes for it, one `Reader` reads for it, and both have it. Made by the client.

A `Batch` is messages in flight, and what became of them until it is written: made by `reader`, filled by `executor`,
emptied by `settler`. A `Portion` is messages that `tail` has read for a member while it waited at the end of the log,
worth something only while its spans stand where they stood.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic

from faststream_outbox._internal.log.blocked import Blocked, Deferral
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.leases import SlotLeases
from faststream_outbox._internal.log.sharing.slots import Cursor, Group, Span
from faststream_outbox._internal.outcomes.outcome import FinalOutcome
from faststream_outbox._internal.service import Pulse
from faststream_outbox._internal.sql.log_rows import ReadMessage

Ended = tuple[Delivery, FinalOutcome, float]
"""A message, what became of it, and how long that took."""


@dataclass(slots=True)
class Batch:
    """Messages in flight, the spans that they belong to, and where those stand when all of it is done."""

    deliveries: list[Delivery]
    spans: list[Span]
    end: Cursor
    stamps: Mapping[int, datetime] = field(default_factory=dict)
    """When the ticks of these messages were made."""
    is_deferred: bool = False
    """Whether these were deferred before."""
    deferrals: list[Deferral] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    halts: dict[int, Cursor] = field(default_factory=dict)
    """Slots that must not go on, and where they stop."""
    ended: list[Ended] = field(default_factory=list)
    """What became of which, to be reported once it is written."""
    passed: int = 0
    """How many were deferred because another one of their key waits."""

    @property
    def stopped(self) -> int:
        """How many were left where they are, because their slot must not go on."""
        return sum(each.cursor > self.halts[each.slot] for each in self.deliveries if each.slot in self.halts)

    def forget(self) -> None:
        """It is written, or rolled back."""
        self.deferrals, self.done, self.ended = [], [], []


@dataclass(frozen=True, slots=True)
class Portion:
    """Messages that were read for a member, of spans that stand at `after`, and where those stand when it is done."""

    rows: Sequence[ReadMessage]
    spans: Sequence[Span]
    after: Cursor
    end: Cursor
    stamps: Mapping[int, datetime]
    generation: int

    def of(self, held: Mapping[int, Span]) -> list[Span] | None:
        """Its spans as they are held now; None if any of them has changed hands or moved."""
        now = [held.get(span.lo) for span in self.spans]
        found = [span for span in now if span is not None]
        is_same = len(found) == len(now) and all(
            (span.hi, span.epoch, span.cursor) == (before.hi, before.epoch, self.after)
            for span, before in zip(found, self.spans, strict=True)
        )
        return found if is_same else None

    def first(self, count: int) -> tuple["Portion", "Portion | None"]:
        """The first so many messages, and the rest."""
        if len(self.rows) <= count:
            return self, None
        last = self.rows[count - 1]
        middle = Cursor(last.tick, last.position)
        spans, stamps, generation = self.spans, self.stamps, self.generation
        return (
            Portion(self.rows[:count], spans, self.after, middle, stamps, generation),
            Portion(self.rows[count:], spans, middle, self.end, stamps, generation),
        )


class Member:
    """What one member of a group holds and knows."""

    def __init__(self, group: Group, options: ReadOptions, leases: SlotLeases, name: str = "") -> None:
        self.group = group
        self.options = options
        self.name: str = name or group.name
        self.leases = leases
        self.blocked: Blocked = Blocked(hold=options.on_parked == "hold_key", most=options.max_deferred)
        self.wake: asyncio.Event = asyncio.Event()
        self.is_stopping: bool = False
        self.is_unsettled: bool = True
        """Whether slots may have to change hands, or an operator may have changed something."""
        self.is_alive: Callable[[], bool] = lambda: True
        """Whether somebody drives it."""
        self.advanced: Callable[[], None] = lambda: None
        """Called by a member that reads for long and finds nothing of its own."""
        self.pulse: Pulse = Pulse()
        """Of whoever drives it; at rest where nobody does."""
        self.handling_since: float | None = None
        """Since when a batch is handled, on the clock of `monotonic`; None while none is."""
        self.portion: Portion | None = None
        """What was read for it while it waited."""
        self.generation: int = -1
        """Of the ticks that its places are of, as far as they are not written."""
        self.heard = 0
        """How much news there had been when it last read."""
        self.unwritten: set[int] = set()
        """Spans whose cursors have passed over messages of others and are not written yet."""

    def named(self, delivery: Delivery) -> tuple[str, str, int, int]:
        """Which message it is, for events: its topic, whose, its position, and how often it was delivered."""
        return self.group.uri, self.name, delivery.position, delivery.deliveries_count

    def needs_note(self, delivery: Delivery) -> bool:
        """Whether it must not run without a note of it, because an owner of its slot died."""
        return delivery.slot in self.leases.crash_guard

    def is_suspect(self, delivery: Delivery) -> bool:
        """Whether an owner died with this very message."""
        return delivery.position in self.leases.crash_guard.suspects

    def survived(self, delivery: Delivery) -> None:
        """What became of a message that needed a note is written."""
        self.leases.crash_guard.had(delivery.slot, delivery.position)

    def begin(self) -> None:
        """It is about to run: it has no slots yet."""
        self.is_stopping = False
        self.doubt()

    def stop(self) -> None:
        """Have it end after what is in flight."""
        self.is_stopping = True
        self.wake.set()

    def doubt(self) -> None:
        """Have it arrange its slots anew before it reads on."""
        self.is_unsettled = True

    def unsettle(self) -> None:
        """The same at once, if it waits."""
        self.doubt()
        self.wake.set()

    def arranged(self) -> None:
        """Its slots are as they should be, as far as it knows."""
        self.is_unsettled = False

    @contextmanager
    def handling(self) -> Generator[None]:
        """However long a handler takes: it is not the loop that hangs."""
        self.pulse.rest()
        self.handling_since = monotonic()
        try:
            yield
        finally:
            self.handling_since = None

    def readable(self) -> list[Span]:
        """Spans that may go on."""
        halted = self.blocked.halted() if self.blocked.keys else ()
        return [s for s in self.leases.spans.values() if not (halted and s.size == 1 and s.lo in halted)]

    def pass_over(self, spans: Sequence[Span], cursor: Cursor, stamp: datetime | None) -> None:
        """Remember that there was nothing for us up to here; written with the next batch, or by and by.

        A place in a tick that is not there any more is not written: the next one that is there will be.
        """
        for span in spans:
            known = self.leases.spans.get(span.lo)
            if known is not None and known.epoch == span.epoch and known.cursor < cursor:
                self.leases.spans[span.lo] = known.at(cursor, stamp)
                if stamp is not None:
                    self.unwritten.add(span.lo)

    def reads_log(self, generation: int) -> None:
        """Begin again where cursors are written, if the server may be another one than it was.

        On one that was behind, other messages come under the numbers that were passed over and not written yet.
        """
        if generation == self.generation:
            return
        self.generation = generation
        self.unwritten.clear()
        for lo, span in list(self.leases.spans.items()):
            if span.written is not None:
                self.leases.spans[lo] = replace(span, cursor=span.written, written=None, stamp=None)

    def hand(self, portion: Portion | None) -> None:
        """This was read for it while it waited; None takes back what was."""
        self.portion = portion
        if portion is not None:
            self.wake.set()

    def handed_batch(self, size: int) -> Batch | None:
        """What was read for it while it waited, if it still stands where it did."""
        portion, self.portion = self.portion, None
        if portion is None or portion.generation != self.generation:
            return None
        spans = portion.of({span.lo: span for span in self.readable()})
        if spans is None:
            return None
        taken, self.portion = portion.first(size)
        return Batch([Delivery(row, self.group.uri) for row in taken.rows], spans, taken.end, taken.stamps)

    def unwritten_spans(self) -> list[Span]:
        """Spans whose cursors have passed over messages of others and are not written yet."""
        return [span for span in self.leases.spans.values() if span.lo in self.unwritten]

    def take_unwritten(self) -> list[Span]:
        """The same for whoever writes them now."""
        spans = self.unwritten_spans()
        self.unwritten.clear()
        return spans

    def wrote(self, span: Span, *, is_kept: bool) -> None:
        """The cursor of a span was written, or was not ours any more."""
        known = self.leases.spans.get(span.lo)
        if known is None or known.epoch != span.epoch:
            return
        if not is_kept:
            self.leases.lose([span])
            self.unsettle()
        elif known.cursor == span.cursor:
            self.leases.spans[span.lo] = known.settled()
            self.unwritten.discard(span.lo)
        else:
            # It has passed over more meanwhile.
            self.leases.spans[span.lo] = replace(known, written=span.cursor)

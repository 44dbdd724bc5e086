"""What one member of a group holds: spans under leases with epochs.

Every write names the epoch under which it holds a span: a member that was slow, paused or cut off moves nothing once
somebody else has taken over. Leases are given up and taken at the boundaries of batches only, by the reader; renewing
may happen at any time. No leader, no session locks, no open transaction. Kept by each `member`.

The crash guard knows the slots whose messages run one by one, because an owner of them has died. Whoever takes slots
over learns that their last owner did not give them back. What that one had in flight is not known, so as many messages
as it may have read run with a note of each; on the happy path nothing is noted. A message that was noted when an owner
died is a suspect. `executor` runs the messages.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.sharing.slots import (
    Cursor,
    Group,
    Plan,
    SeenSpan,
    Slots,
    Span,
    fair_plan,
    fixed_plan,
    joinable,
)
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.log_rows import GroupSpan, Heartbeat, JoinedSpan, TakenSpan
from faststream_outbox._internal.sql.statements import column, named, statements


class CrashGuard:
    """The slots whose messages run with a note, and the suspects among those."""

    def __init__(self) -> None:
        self._left: dict[int, list[int]] = {}
        self.suspects: dict[int, int] = {}
        """Messages by position, and how often an owner has died with each."""

    def __contains__(self, slot: int) -> bool:
        return slot in self._left

    def need(self, lo: int, hi: int, messages: int) -> None:
        """Take care of the next so many messages of these slots."""
        left = [messages]
        self._left.update(dict.fromkeys(range(lo, hi + 1), left))

    def had(self, slot: int, position: int) -> None:
        """A message of this slot is dealt with, and everybody is alive."""
        self.suspects.pop(position, None)
        left = self._left.get(slot)
        if left is not None:
            left[0] -= 1
            if left[0] <= 0:
                self._left = {each: others for each, others in self._left.items() if others is not left}


NO_EPOCH = -1
"""No span has it."""
BUSY_PAUSE = 0.01
BUSY_TRIES = 100
ATTEMPTS = 8
"""How often a plan is made anew at once, when another member took what it was about."""


@dataclass(slots=True)
class SlotLeases:
    """The spans of one member. `fixed` names its slots, or None where members share them fairly."""

    group: Group
    connection: DedicatedConnection
    names: LogNames
    ttl: float
    start: Callable[[], Awaitable[Cursor]]
    """Where the group begins that has never read."""
    me: UUID
    """Begins with the worker id of its client."""
    fixed: Slots | None = None
    spans: dict[int, Span] = field(default_factory=dict)
    members: int = 1
    crash_guard: CrashGuard = field(default_factory=CrashGuard)
    in_flight: int = 100
    """How many messages a member may have in flight, and so one that died."""

    @property
    def lease_seconds(self) -> float:
        """How long a lease lives unless it is renewed."""
        # Renewed every quarter and noticed within one: a dead member's slots are taken over within the whole time.
        return self.ttl * 0.75

    @property
    def values(self) -> dict[str, Any]:
        """Parameters of every statement."""
        return {**self.group.values, "me": self.me, "ttl": self.lease_seconds}

    @property
    def size(self) -> int:
        """How many slots are held."""
        return sum(span.size for span in self.spans.values())

    @property
    def is_complete(self) -> bool:
        """Whether nothing more can be taken: never so for a share, because another member may have died."""
        return self.fixed is not None and self.size == self.fixed[1] - self.fixed[0] + 1

    def holds(self, slot: int) -> bool:
        """Whether this slot is held, as far as is known."""
        return self.span_of(slot) is not None

    def span_of(self, slot: int) -> Span | None:
        """The span that has this slot, if it is held."""
        return next((span for span in self.spans.values() if span.lo <= slot <= span.hi), None)

    async def _fetch(self, name: str, values: Mapping[str, Any]) -> Sequence[Any]:
        return await self.connection.fetch(statements("group", self.names)[name], {**self.values, **values})

    async def rebalance(self) -> bool:
        """Give up what is too much and take what is free; whether anything was given up."""
        gave = False
        if self.fixed is None:
            for _ in range(ATTEMPTS):
                seen = await self.seen()
                plan = fair_plan(seen, self.me, self.members)
                gave = gave or bool(plan.give)
                if await self._carry_out(plan, seen):
                    break
        else:
            lo, hi = self.fixed
            if not self.spans:
                # One statement is enough, most of the time.
                await self._take(lo, hi)
            for _ in range(ATTEMPTS if self.size < hi - lo + 1 else 0):
                seen = await self.seen()
                if await self._carry_out(fixed_plan(seen, self.me, lo, hi), seen):
                    break
        await self._join()
        return gave

    async def seen(self) -> list[SeenSpan]:
        """All spans of the group; makes the first one if there is none."""
        rows = await self._fetch("spans", {})
        if not rows:
            start = await self.start()
            await self._fetch("make_group", {"tick": start.tick, "position": start.position})
            rows = await self._fetch("spans", {})
        spans = [
            SeenSpan(Span(row.lo, row.hi, Cursor(row.tick, row.position), row.epoch), row.owner, row.is_free)
            for row in named(GroupSpan, rows)
        ]
        ours = {each.span.lo: each.span for each in spans if each.owner == self.me}
        # Ours by name, but not by what we know: somebody gave us up for dead, or a reply was lost.
        # Or the database has gone back to a backup or a standby: its cursor is the truth, and not ours.
        for lo, span in list(self.spans.items()):
            if lo not in ours or ours[lo].epoch != span.epoch or ours[lo].cursor != span.known:
                del self.spans[lo]
        stray = {lo for lo in ours if lo not in self.spans}
        if stray:
            # Others may have more room for them than we do.
            await self._fetch("release_spans", leases(span for lo, span in ours.items() if lo in stray))
        return [replace(each, owner=None, is_free=True) if each.span.lo in stray else each for each in spans]

    async def _carry_out(self, plan: Plan, seen: Iterable[SeenSpan]) -> bool:
        """Whether all of it came about; if not, somebody else was faster, and there is a new plan to make."""
        known = [each.span for each in seen]
        came_about = True
        for lo, hi in plan.give:
            span = await self._isolated(known, lo, hi)
            if span is not None and span.lo in self.spans:
                await self.release([span])
            else:
                came_about = False
        for lo, hi in plan.take:
            if await self._isolated(known, lo, hi) is not None:
                await self._take(lo, hi)
            came_about = came_about and self.holds(lo) and self.holds(hi)
        return came_about

    async def _isolated(self, known: list[Span], lo: int, hi: int) -> Span | None:
        """The span of exactly these slots, cut out of the one that holds them; None if that has changed."""
        span = next((span for span in known if span.lo <= lo and hi <= span.hi), None)
        for at in (lo, hi + 1):
            if span is not None and span.lo < at <= span.hi:
                left, right = await self._cut(span, at)
                known[:] = [each for each in known if each is not span]
                known += [each for each in (left, right) if each is not None]
                span = right if at == lo else left
        return span

    async def _cut(self, span: Span, at: int) -> tuple[Span | None, Span | None]:
        values = {"lo": span.lo, "hi": span.hi, "at": at, "epoch": span.epoch}
        epochs = column(await self._fetch("cut_span", values))
        if not epochs:
            return None, None
        (epoch,) = epochs
        left = replace(span, hi=at - 1, epoch=epoch)
        right = replace(span, lo=at, epoch=epoch)
        if span.lo in self.spans:
            self.spans[left.lo], self.spans[right.lo] = left, right
        return left, right

    async def isolate(self, slot: int) -> Span | None:
        """Make a slot that is held a span of its own; None if it is not held any more."""
        for _ in range(BUSY_TRIES):
            span = await self._isolated(list(self.spans.values()), slot, slot)
            if span is not None:
                return span
            # Lost, or somebody is about the group's spans just now.
            await asyncio.sleep(BUSY_PAUSE)
            await self.seen()
            if not self.holds(slot):
                break
        return None

    async def _take(self, lo: int, hi: int) -> None:
        for row in named(TakenSpan, await self._fetch("take_range", {"lo": lo, "hi": hi})):
            self.spans[row.lo] = Span(row.lo, row.hi, Cursor(row.tick, row.position), row.epoch)
            if row.died or row.suspect is not None:
                self.crash_guard.need(row.lo, row.hi, self.in_flight)
            if row.suspect is not None and row.crashes:
                self.crash_guard.suspects[row.suspect] = row.crashes

    async def _join(self) -> None:
        for run in joinable(self.spans.values()):
            values = {"los": [span.lo for span in run], "epochs": [span.epoch for span in run]}
            for row in named(JoinedSpan, await self._fetch("join_spans", values)):
                for span in run:
                    self.spans.pop(span.lo, None)
                self.spans[row.lo] = Span(row.lo, row.hi, Cursor(row.tick, row.position), row.epoch)

    async def release(self, spans: Sequence[Span] | None = None) -> None:
        """Give leases back: these, or all."""
        given = list(self.spans.values()) if spans is None else list(spans)
        if not given:
            return
        for span in given:
            self.spans.pop(span.lo, None)
        await self._fetch("release_spans", leases(given))

    def lose(self, gone: Iterable[Span]) -> None:
        """Forget spans, unless they were taken anew in the meantime."""
        for span in gone:
            if span.epoch == NO_EPOCH:
                # What became of its messages could not be written, although it may be ours: it is read again.
                for lo in [lo for lo in self.spans if span.lo <= lo <= span.hi]:
                    del self.spans[lo]
            known = self.spans.get(span.lo)
            if known is not None and known.epoch == span.epoch:
                del self.spans[span.lo]

    def moved(self, spans: Iterable[Span], kept: Iterable[int]) -> list[Span]:
        """Take note of cursors that were written, and of spans that were not ours any more; returns those."""
        still = set(kept)
        lost = [span for span in spans if span.lo not in still]
        for span in spans:
            if span.lo in still and span.lo in self.spans:
                self.spans[span.lo] = span.settled()
        self.lose(lost)
        return lost

    async def heartbeat(self) -> bool:
        """Say that this member lives, and count the living; whether it is new among them."""
        (beat,) = named(Heartbeat, await self._fetch("heartbeat", {}))
        self.members = beat.members
        return beat.is_new

    async def give_back(self) -> None:
        """Give everything back, also what is ours without our knowing."""
        self.spans.clear()
        await self._fetch("release_all", {})

    async def leave(self, call: str) -> None:
        """Give everything back and be a member no more; the others hear this call."""
        if self.fixed is None:
            self.spans.clear()
            await self._fetch("leave", {"channel": self.names.channel, "payload": call})
        else:
            await self.give_back()


def leases(spans: Iterable[Span]) -> dict[str, Any]:
    """Leases as parameters."""
    held = list(spans)
    return {"los": [span.lo for span in held], "epochs": [span.epoch for span in held]}


def moves(spans: Iterable[Span], *, again: bool) -> dict[str, Any]:
    """Cursors as parameters of `advance` and `move`: each is moved only from where it is known to stand, to a tick
    that is the one that was read.

    `again` if it may stand there already, because the answer to an earlier try was lost.
    """
    held = list(spans)
    return {
        **leases(held),
        "ticks": [span.cursor.tick for span in held],
        "positions": [span.cursor.position for span in held],
        "stamps": [span.stamp for span in held],
        "from_ticks": [span.known.tick for span in held],
        "from_positions": [span.known.position for span in held],
        "again": again,
    }

"""A reader: one member of a group, from the leases that it holds to the batches that it reads.

Reads in the order of the log, from the spans that are furthest behind; what a filter does not match is
passed over, and the cursor with it. A batch is settled by one statement: cursors and what is set aside
move together, and only where the leases are still ours. Driven by `dispatching`, `consumer` and
`iterating`; never holds a transaction open.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from faststream_outbox.errors import LeaseLost
from faststream_outbox.events import table as told
from faststream_outbox.log.blocked import DEFERRED, PARKED, Aside, Blocked, as_changes, as_columns, slots_of
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.holding import NO_EPOCH, Group, Holding, leases, moves
from faststream_outbox.log.options import ReadOptions
from faststream_outbox.log.slots import SLOTS, prefix_of
from faststream_outbox.log.spans import Cursor, Slots, Span, furthest_behind
from faststream_outbox.log.timeline import window
from faststream_outbox.outcomes.outcome import Outcome
from faststream_outbox.schema.log_tables import LogNames
from faststream_outbox.service import pause_after
from faststream_outbox.sql import Statement, statements
from faststream_outbox.sql.through import AnySession, through

if TYPE_CHECKING:
    from faststream_outbox.log.client import LogClient

WIDEST_WINDOW = 20_000
PROGRESS_SECONDS = 1.0
LOCK_SECONDS = 0.2
LOCK_NOT_AVAILABLE = "55P03"


Ended = tuple[Delivery, Outcome, float]
"""A message, what became of it, and how long that took."""


@dataclass(slots=True)
class Batch:
    """Messages in hand, the spans that they belong to, and where those stand when all of it is done."""

    deliveries: list[Delivery]
    spans: list[Span]
    end: Cursor
    is_aside: bool = False
    """Whether these were set aside before."""
    asides: list[Aside] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    halts: dict[int, Cursor] = field(default_factory=dict)
    """Slots that must not go on, and where they stop."""
    ended: list[Ended] = field(default_factory=list)
    """What became of which, to be told once it is written."""
    passed: int = 0
    """How many were set aside because another one of their key waits."""

    @property
    def stopped(self) -> int:
        """How many were left where they are, because their slot must not go on."""
        return sum(each.cursor > self.halts[each.slot] for each in self.deliveries if each.slot in self.halts)

    def forget(self) -> None:
        """It is written, or rolled back."""
        self.asides, self.done, self.ended = [], [], []


class Reader:
    """One member of a group."""

    def __init__(
        self, client: "LogClient", group: Group, options: ReadOptions, *, fixed: Slots | None = None, name: str = ""
    ) -> None:
        self.client = client
        self.group = group
        self.options = options
        self.name = name or group.name
        start = client.latest if options.start == "latest" else client.earliest
        self.holding = Holding(group, client.wire, client.names, options.lease_ttl_seconds, start, fixed)
        self.blocked = Blocked(hold=options.on_parked == "hold_key", most=options.max_deferred)
        self.wake = asyncio.Event()
        self.is_alive: Callable[[], bool] = lambda: True
        """Whether somebody drives it."""
        self.told: Callable[[Sequence[Ended]], None] | None = None
        """Hears what became of messages, once it is written."""
        self.is_stopping = False
        self.is_unsettled = True
        """Whether slots may have to change hands, or an operator may have changed something."""
        self._wide = 1
        self._held = 0
        self._moved_at = 0.0
        self._unwritten: set[int] = set()
        self._log = statements("log", client.names)
        self._groups = statements("group", client.names)
        self._asides = statements("aside", client.names)

    async def arrange(self) -> None:
        """Take and give up slots, as is fair, and learn which keys wait."""
        self.is_unsettled = False
        holding = self.holding
        if self._unwritten:
            await self.write_progress()
        if await holding.rebalance():
            # Others wait for what was given up.
            await self.client.call()
            self.is_unsettled = False
        if holding.spans:
            await self._load_blocked()
        if holding.size != self._held:
            self._held = holding.size
            event = told.SlotsHeld(self.group.name, self.group.uri, str(holding.me), self._held, holding.members)
            self.client.events.emit(event)

    async def enter(self) -> None:
        """Become a member, without a share yet."""
        if self.holding.fixed is None and await self.holding.heartbeat():
            await self.client.call()

    async def join(self) -> None:
        """Become a member, and take a share."""
        await self.enter()
        await self.arrange()

    async def keep(self) -> None:
        """Renew what is held; who else lives, and what a dead one left, is looked at before the next batch."""
        holding = self.holding
        await holding.renew()
        if holding.fixed is None:
            await holding.heartbeat()
        if not holding.is_complete:
            self.is_unsettled = True
            self.wake.set()

    async def leave(self) -> None:
        """Give everything back, with what was passed over written, and be a member no more."""
        await self.write_progress()
        await self.holding.leave()
        if self.holding.fixed is None:
            await self.client.call()

    async def next_batch(self, limit: int | None = None, *, is_idle: bool = False) -> Batch | None:
        """What to handle next: what waited and is due now, else what is next in the log."""
        size = limit or self.options.batch_size
        due = self.blocked.due(asyncio.get_running_loop().time()) if self.blocked.keys else []
        if due:
            batch = await self._due_batch(due, size)
            if batch is not None:
                return batch
        return await self._fresh_batch(size, is_idle=is_idle)

    async def _due_batch(self, keys: list[str], size: int) -> Batch | None:
        values = {**self.group.values, "keys": keys[:size], "limit": size, "hold": self.blocked.hold}
        rows = await self.client.wire.fetch(self._asides["fetch_aside"], values)
        for key in set(keys[:size]) - {row[2] for row in rows}:
            # An operator has ended them.
            self.blocked.keys.pop(key, None)
        ready = list(_in_turn(rows))[:size]
        if not ready:
            # An operator has changed what comes first.
            await self._load_blocked()
            return None
        deliveries = [Delivery.waiting(row, self.group.uri) for row in ready]
        return Batch(deliveries, list(self.holding.spans.values()), Cursor(0, 0), is_aside=True)

    async def _fresh_batch(self, size: int, *, is_idle: bool) -> Batch | None:
        timeline, wire = self.client.timeline, self.client.wire
        halted = self.blocked.halted() if self.blocked.keys else ()
        while not self.is_stopping:
            readable = [s for s in self.holding.spans.values() if not (halted and s.size == 1 and s.lo in halted)]
            behind, until = furthest_behind(readable)
            if not behind:
                return None
            cursor = behind[0].cursor
            if not is_idle and not timeline.may_follow(cursor):
                return None
            owned = sum(span.size for span in behind)
            ticks = await timeline.after(wire, cursor)
            found = window(ticks, cursor, min(WIDEST_WINDOW, size * self._wide * SLOTS // owned), until)
            if found is None:
                if until is None:
                    return None
                # Nothing lies between the two places: they are the same.
                self._note(behind, until)
                continue
            slots = None if owned == SLOTS else [slot for span in behind for slot in range(span.lo, span.hi + 1)]
            values = {
                "ticks": found.ticks,
                "los": found.los,
                "his": found.his,
                "slots": slots,
                "uri": self.group.uri,
                "prefix": prefix_of(self.group.uri),
                "limit": size,
            }
            rows = await wire.fetch(self._log["fetch"], values)
            end = Cursor(rows[-1][0], rows[-1][1]) if len(rows) == size else found.end
            if rows:
                # A window as wide as it takes to fill a batch, as far as the last one can tell.
                self._wide = max(1, self._wide // 2) if len(rows) > size // 2 else self._wide
                topic = self.group.uri
                return Batch([Delivery(row, topic) for row in rows], behind, end)
            self._wide = min(1024, self._wide * 4)
            self._note(behind, end)
            if asyncio.get_running_loop().time() - self._moved_at > PROGRESS_SECONDS:
                await self.write_progress()
        return None

    def _note(self, spans: Sequence[Span], cursor: Cursor) -> None:
        """Remember that there was nothing for us up to here; written with the next batch, or by and by."""
        for span in spans:
            known = self.holding.spans.get(span.lo)
            if known is not None and known.epoch == span.epoch:
                self.holding.spans[span.lo] = span.at(cursor)
                self._unwritten.add(span.lo)

    async def write_progress(self, *, release: bool = False) -> None:
        """Write cursors that have passed over messages of others."""
        spans = [span for span in self.holding.spans.values() if span.lo in self._unwritten]
        self._unwritten.clear()
        self._moved_at = asyncio.get_running_loop().time()
        if spans:
            await self._write("move", {**moves(spans, again=True), "release": release}, spans)

    async def settle(self, batch: Batch, reached: Cursor, *, release: bool = False) -> None:
        """Write what became of a batch up to a place, on a fresh connection if ours dies; tells what was lost."""
        if batch.is_aside:
            await self._settle_asides(batch)
        else:
            await self._settle_fresh(batch, reached, release=release)
        self._tell(batch)
        batch.forget()

    async def moving(self, batch: Batch, reached: Cursor) -> list[Span]:
        """The batch's spans at the place that was reached, or where they were stopped before it.

        One that was lost, or that a stopped slot could not be cut out of, comes with an epoch that no fence lets pass.
        """
        for slot in batch.halts:
            await self.holding.isolate(slot)
        held: list[Span] = []
        for span in batch.spans:
            # Perhaps it was cut since, also for a try that was rolled back.
            parts = [part for part in self.holding.spans.values() if span.lo <= part.lo <= span.hi]
            is_whole = sum(part.size for part in parts) == span.size
            held += parts if is_whole else [replace(span, epoch=NO_EPOCH)]
        batch.spans = held
        return [
            replace(span.at(reached), epoch=NO_EPOCH)
            if span.size > 1 and span.has_any(batch.halts)
            else span.at(min(reached, batch.halts.get(span.lo, reached)))
            for span in held
        ]

    async def _settle_fresh(self, batch: Batch, reached: Cursor, *, release: bool) -> None:
        # Those behind move on; the others only where their way was passed over.
        spans = await self.moving(batch, reached)
        known = {span.lo for span in spans}
        passed = [s for s in self.holding.spans.values() if s.lo in self._unwritten and s.lo not in known]
        self._unwritten.clear()
        self._moved_at = asyncio.get_running_loop().time()
        values = {**moves([*spans, *passed], again=True), "release": release}
        if batch.asides:
            values |= as_columns(batch.asides)
        lost = await self._write("advance" if batch.asides else "move", values, [*spans, *passed])
        gone = {span.lo for span in lost}
        kept = [span for span in spans if span.lo not in gone]
        if gone:
            slots = {slot for span in kept for slot in range(span.lo, span.hi + 1)}
            self._tell_lost([entry for entry in batch.ended if entry[0].slot not in slots])
            batch.ended = [entry for entry in batch.ended if entry[0].slot in slots]
        self._put_aside(batch, spans)

    def _put_aside(self, batch: Batch, spans: Sequence[Span]) -> None:
        batch.spans = [span.settled() for span in spans if span.lo in self.holding.spans]
        now = asyncio.get_running_loop().time()
        for aside in batch.asides:
            self.blocked.put(aside, now)

    async def _settle_asides(self, batch: Batch) -> None:
        if batch.asides or batch.done:
            values = self._aside_values(batch, batch.done)
            rows = await self._persist(self._asides["settle_aside"], values, lock_seconds=LOCK_SECONDS)
            written = {row[0] for row in rows}
            self._tell_lost([entry for entry in batch.ended if entry[0].position not in written])
            batch.ended = [entry for entry in batch.ended if entry[0].position in written]
        await self._load_blocked()

    async def _load_blocked(self) -> None:
        values = {**self.group.values, **slots_of(self.holding.spans.values()), "hold": self.blocked.hold}
        rows = await self._persist(self._asides["blocked"], values)
        self.blocked.load(rows, asyncio.get_running_loop().time())

    def _aside_values(self, batch: Batch, done: Sequence[int]) -> dict[str, Any]:
        return {**self.holding.values, **leases(self.holding.spans.values()), **as_changes(batch.asides, done)}

    async def settle_within(self, session: AnySession, batch: Batch, reached: Cursor, done: Sequence[int]) -> None:
        """Write what became of a batch in a handler's own transaction, or raise `LeaseLost`: the fence.

        `done` are the positions that are handled, of those that were set aside before.
        """
        opened = await through(session, self.client.tables.log)
        names = LogNames.of(self.client.tables, opened.schema_map)
        if batch.is_aside:
            statement, values = statements("aside", names)["settle_aside"], self._aside_values(batch, done)
            expected = {*done, *(aside.position for aside in batch.asides)}
        else:
            spans = await self.moving(batch, reached)
            # Not again: a try whose COMMIT succeeded without our hearing of it must not have its effects twice.
            values = {**self.holding.values, **moves(spans, again=False), **as_columns(batch.asides), "release": False}
            statement = statements("group", names)["advance"]
            expected = {span.lo for span in spans}
        written = {row[0] for row in await opened.fetch(statement, values)} if expected else set()
        if written != expected:
            self.is_unsettled = True
            self.holding.lose(batch.spans if not batch.is_aside else list(self.holding.spans.values()))
            msg = f"Group {self.group.name!r} lost its lease on these messages; roll this transaction back."
            raise LeaseLost(msg)

    async def committed(self, batch: Batch, reached: Cursor) -> None:
        """The transaction that `settle_within` wrote in has committed."""
        if batch.is_aside:
            await self._load_blocked()
        else:
            spans = await self.moving(batch, reached)
            self.holding.moved(spans, [span.lo for span in spans])
            self._put_aside(batch, spans)
        self._tell(batch)
        batch.forget()

    async def _write(self, name: str, values: dict[str, Any], spans: Sequence[Span]) -> list[Span]:
        # A lock on a row of ours is somebody's who puts the group elsewhere: then it is not ours any more.
        lock_seconds = LOCK_SECONDS if name == "advance" else None
        rows = await self._persist(self._groups[name], {**self.holding.values, **values}, lock_seconds=lock_seconds)
        lost = self.holding.moved(spans, [row[0] for row in rows])
        if lost:
            self.is_unsettled = True
        if values["release"]:
            for span in spans:
                self.holding.spans.pop(span.lo, None)
        return lost

    async def _persist(
        self, statement: Statement, values: dict[str, Any], *, lock_seconds: float | None = None
    ) -> Sequence[Any]:
        wire = self.client.wire
        failures = 0
        while True:
            try:
                if lock_seconds is None:
                    return await wire.fetch(statement, values)
                return (await wire.fetch_each([(statement, values)], lock_seconds=lock_seconds))[0]
            except Exception as error:
                if getattr(error, "sqlstate", None) == LOCK_NOT_AVAILABLE:
                    return []
                failures += 1
                if failures > 8:
                    raise
                self.client.events.emit(told.ConnectionLost("settling", error))
                await asyncio.sleep(pause_after(failures))

    def _tell(self, batch: Batch) -> None:
        self.client.tell(self, batch.ended)
        batch.passed += sum(aside.state == DEFERRED for aside in batch.asides)
        if self.told is not None:
            self.told(batch.ended)

    def _tell_lost(self, entries: Sequence[Ended]) -> None:
        for delivery, _, _ in entries:
            event = told.LeaseLost(self.group.uri, self.name, delivery.position, delivery.deliveries_count, "settling")
            self.client.events.emit(event)


def _in_turn(rows: Iterable[Any]) -> Iterator[Any]:
    """Of messages that wait, those that may run: each key up to the first that is parked or not due."""
    stopped: set[str] = set()
    for row in rows:
        if row[2] in stopped:
            continue
        if row[12] == PARKED or (row[13] or 0.0) > 0.0:
            stopped.add(row[2])
        else:
            yield row

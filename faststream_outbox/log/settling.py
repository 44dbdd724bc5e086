"""Settling: what became of a batch is written by one statement, under the leases that it was read under.

Cursors and what is set aside move together, and only where the spans are still ours, stand where they are
known to, and their ticks are those that were read. A handler's own transaction is settled in by the same
statements; if the answer to its COMMIT is lost, `fate` finds out. Half of `Reader`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.errors import LeaseLost
from faststream_outbox.events import table as told
from faststream_outbox.log.batch import Batch, Ended
from faststream_outbox.log.blocked import DEFERRED, Blocked, as_changes, as_columns, slots_of
from faststream_outbox.log.fate import Written, fate_of
from faststream_outbox.log.holding import NO_EPOCH, Group, Holding, leases, moves
from faststream_outbox.log.options import ReadOptions
from faststream_outbox.log.spans import Cursor, Slots, Span
from faststream_outbox.schema.log_tables import LogNames
from faststream_outbox.service import pause_after
from faststream_outbox.sql import Statement, statements
from faststream_outbox.sql.through import AnySession, through
from faststream_outbox.uncertain import Fate, commit

if TYPE_CHECKING:
    from faststream_outbox.log.client import LogClient

LOCK_SECONDS = 0.2
LOCK_NOT_AVAILABLE = "55P03"
MOST_REFUSALS = 8
_REFUSED = ("22", "23", "42", "0A")


class Settling:
    """What one member of a group holds, and how it writes."""

    def __init__(
        self, client: "LogClient", group: Group, options: ReadOptions, *, fixed: Slots | None = None, name: str = ""
    ) -> None:
        self.client = client
        self.group = group
        self.options = options
        self.name = name or group.name
        start = partial(client.place_of, options.start)
        self.holding = Holding(group, client.wire, client.names, options.lease_ttl_seconds, start, fixed)
        self.holding.in_hand = options.batch_size
        self.blocked = Blocked(hold=options.on_parked == "hold_key", most=options.max_deferred)
        self.told: Callable[[Sequence[Ended]], None] | None = None
        """Hears what became of messages, once it is written."""
        self.is_stopping = False
        self.is_unsettled = True
        """Whether slots may have to change hands, or an operator may have changed something."""
        self._moved_at = 0.0
        self._unwritten: set[int] = set()
        self._within: Written | None = None
        """What was written last in a handler's own transaction."""
        self._groups = statements("group", client.names)
        self._asides = statements("aside", client.names)

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
        moved: list[Span] = []
        for span in held:
            place = min(reached, batch.halts.get(span.lo, reached))
            is_stuck = span.size > 1 and span.has_any(batch.halts)
            there = span.at(place, batch.stamps.get(place.tick))
            moved.append(replace(there, epoch=NO_EPOCH) if is_stuck else there)
        return moved

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
            self._within = Written(list(self.holding.spans.values()), tuple(done), tuple(batch.asides))
        else:
            spans = await self.moving(batch, reached)
            # Not again: a try whose COMMIT succeeded without our hearing of it must not have its effects twice.
            values = {**self.holding.values, **moves(spans, again=False), **as_columns(batch.asides), "release": False}
            statement = statements("group", names)["advance"]
            expected = {span.lo for span in spans}
            self._within = Written(spans)
        written = {row[0] for row in await opened.fetch(statement, values)} if expected else set()
        self._check_fence(expected, written, batch)

    async def lock_within(self, session: AnySession, batch: Batch) -> None:
        """Hold a batch's spans in a handler's own transaction until it ends, or raise `LeaseLost`.

        A transaction above READ COMMITTED needs this first: a renewal meanwhile would be in conflict with its settle.
        """
        for slot in batch.halts:
            # Now, because a span that is held cannot be cut.
            await self.holding.isolate(slot)
        held = list(self.holding.spans.values())
        if not batch.is_aside:
            held = [part for part in held if any(span.lo <= part.lo <= span.hi for span in batch.spans)]
        opened = await through(session, self.client.tables.log)
        names = LogNames.of(self.client.tables, opened.schema_map)
        rows = await opened.fetch(statements("group", names)["lock_spans"], {**self.holding.values, **leases(held)})
        self._check_fence({span.lo for span in held}, {row[0] for row in rows}, batch)

    def _check_fence(self, expected: set[int], found: set[int], batch: Batch) -> None:
        if found == expected:
            return
        self.is_unsettled = True
        self.holding.lose(batch.spans if not batch.is_aside else list(self.holding.spans.values()))
        msg = f"Group {self.group.name!r} lost its lease on these messages; roll this transaction back."
        raise LeaseLost(msg)

    async def commit(self, session: AsyncSession) -> None:
        """Commit the transaction that `settle_within` wrote in, or raise; whether it came about is found out."""
        await commit(session, self.fate, lambda error: self._failed("committing", error))

    async def fate(self) -> Fate:
        """What became of the transaction that `settle_within` wrote in last."""
        written = self._within
        if written is None:
            return Fate.ROLLED_BACK
        sql, values = self._groups, {**self.group.values, **written.values}
        steps = [(sql["standing"], values), (sql["still_aside"], values)]
        found = await self.client.wire.fetch_each(steps if written.positions else steps[:1])
        return fate_of(written, self.holding.me, found[0], found[1] if len(found) > 1 else ())

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

    async def note(self, slot: int, position: int | None) -> int | None:
        """Note which message of a slot is about to run, or that none is; how often owners died with it.

        None if the slot is not ours any more.
        """
        span = self.holding.span_of(slot)
        if span is None:
            return None
        values = {**self.holding.values, "lo": span.lo, "epoch": span.epoch, "suspect": position}
        rows = await self._persist(self._groups["note"], values)
        if not rows:
            self.is_unsettled = True
            self.holding.lose([span])
            return None
        return int(rows[0][0])

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
                if failures > MOST_REFUSALS and (self.is_stopping or _is_refused(error)):
                    raise
                # As long as it takes: what was handled would be handled again.
                self._failed("settling", error)
                await asyncio.sleep(pause_after(failures))

    def _failed(self, role: str, error: BaseException) -> None:
        self.client.events.emit(told.ConnectionLost(role, error))

    def _tell(self, batch: Batch) -> None:
        self.client.tell(self, batch.ended)
        batch.passed += sum(aside.state == DEFERRED for aside in batch.asides)
        if self.told is not None:
            self.told(batch.ended)

    def _tell_lost(self, entries: Sequence[Ended]) -> None:
        for delivery, _, _ in entries:
            delivery.is_running = False
            event = told.LeaseLost(self.group.uri, self.name, delivery.position, delivery.deliveries_count, "settling")
            self.client.events.emit(event)


def _is_refused(error: BaseException) -> bool:
    """Whether the server will say the same of the same statement again."""
    state = getattr(error, "sqlstate", None)
    return isinstance(state, str) and state.startswith(_REFUSED)

"""A settler: writes what became of the messages of one member, and what it has passed over.

What became of a batch is one statement, under the leases that it was read under: cursors and what is deferred move
together, and only where the spans are still ours, stand where they are known to, and their ticks are those that were
read. A handler's own transaction is settled in by the same statements; if the answer to its COMMIT is lost, the rows
that it wrote tell whether it came about. Events tell of messages once it is written, and no sooner. Called by
`reader`, by the `BatchRun` of `executor`, and by whoever drives them.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.caller import AnySession, caller_connection
from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.connections.transactions import Fate, commit
from faststream_outbox._internal.engine import closing
from faststream_outbox._internal.log.blocked import DEFERRED, Deferral, as_changes, as_columns, ranges_of
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.member import Batch, Ended, Member
from faststream_outbox._internal.log.sharing.leases import NO_EPOCH, leases, moves
from faststream_outbox._internal.log.sharing.slots import Cursor, Span
from faststream_outbox._internal.outcomes.failure import Failure, described
from faststream_outbox._internal.outcomes.outcome import Done, Settled
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.log_rows import BlockedKey, LockedSpan, StillDeferred
from faststream_outbox._internal.sql.statements import Statement, column, named, statements
from faststream_outbox.errors import LeaseLost, NotReadable

if TYPE_CHECKING:
    from faststream_outbox._internal.log.client import LogClient


@dataclass(frozen=True, slots=True)
class Written:
    """What a transaction wrote: cursors that it moved, or deferred messages that it ended or put off."""

    spans: Sequence[Span]
    done: tuple[int, ...] = ()
    deferrals: tuple[Deferral, ...] = ()

    @property
    def positions(self) -> list[int]:
        """The deferred messages."""
        return [*self.done, *(deferral.position for deferral in self.deferrals)]

    @property
    def values(self) -> dict[str, Any]:
        """As parameters of the question."""
        return {"los": [span.lo for span in self.spans], "positions": self.positions}


def fate_of(written: Written, me: UUID, spans: Sequence[LockedSpan], deferred: Sequence[StillDeferred]) -> Fate:
    """What became of the transaction, by how its spans stand and which of its messages are deferred."""
    if not all(row.is_free for row in spans):
        return Fate.OPEN
    rows = {row.lo: row for row in spans}
    ours = [(span, rows[span.lo]) for span in written.spans if _is_ours(span, me, rows.get(span.lo))]
    if not written.positions:
        moved = [(span, (row.tick, row.position)) for span, row in ours if span.cursor != span.known]
        if any(place == span.cursor for span, place in moved):
            return Fate.COMMITTED
        return Fate.ROLLED_BACK if any(place == span.known for span, place in moved) else Fate.UNKNOWN
    if not ours:
        return Fate.UNKNOWN
    left = {row.position: (row.state, row.attempts) for row in deferred}
    if any(position not in left for position in written.done):
        return Fate.COMMITTED
    # Only failures: nothing but their count depends on it.
    is_counted = not written.done and all(
        left.get(one.position) == (one.state, one.attempts) for one in written.deferrals
    )
    return Fate.COMMITTED if is_counted else Fate.ROLLED_BACK


def _is_ours(span: Span, me: UUID, row: LockedSpan | None) -> bool:
    return row is not None and row.epoch == span.epoch and row.owner == me


LOCK_SECONDS = 0.2


class Settler:
    """Writes for one member, and reports what is written."""

    def __init__(self, member: Member, client: "LogClient") -> None:
        self.member = member
        self._leases = member.leases
        self._blocked = member.blocked
        self._client = client
        self.isolation = client.isolation
        """Of the transactions of handlers."""
        self.reported: Callable[[Sequence[Ended]], None] | None = None
        """Hears what became of messages, once it is written."""
        self.moved_at = 0.0
        """When cursors were written last, on the clock of the event loop."""
        self._within: Written | None = None
        """What was written last in a handler's own transaction."""
        self._groups = statements("group", client.names)
        self._deferrals = statements("deferred", client.names)

    def is_heard(self, kind: type[Any]) -> bool:
        """Whether anybody listens to events of this type."""
        return kind in self._client.events

    def emit(self, event: events.Event) -> None:
        """Report what has happened."""
        self._client.events.emit(event)

    def describe(self, error: BaseException | None) -> Failure:
        """An error as it is stored with a message."""
        return described(error, self._client.renderer)

    def error_of(self, position: int) -> NotReadable:
        """Why a message cannot be read."""
        return self._client.fetcher.error_of(position)

    def suspicion(self) -> asyncio.Lock:
        """Held while a message runs that may have ended a process."""
        return self._client.suspicion()

    def open_session(self) -> AsyncSession:
        """A session for a transactional handler."""
        return self._client.open_session()

    async def write_progress(self, *, release: bool = False) -> None:
        """Write cursors that have passed over messages of others."""
        await self._client.tail.written(self.member)
        spans = self.member.take_unwritten()
        self.moved_at = asyncio.get_running_loop().time()
        if spans:
            await self._write("move", {**moves(spans, again=True), "release": release}, spans)

    async def settle(self, batch: Batch, reached: Cursor, *, release: bool = False) -> None:
        """Write what became of a batch up to a place, on a fresh connection if ours dies; reports what was lost."""
        if batch.is_deferred:
            await self._settle_deferrals(batch)
        else:
            await self._settle_fresh(batch, reached, release=release)
        self._tell(batch)
        batch.forget()

    async def _moving(self, batch: Batch, reached: Cursor) -> list[Span]:
        """The batch's spans at the place that was reached, or where they were stopped before it.

        One that was lost, or that a stopped slot could not be cut out of, comes with an epoch that no fence lets pass.
        """
        for slot in batch.halts:
            await self._leases.isolate(slot)
        held: list[Span] = []
        for span in batch.spans:
            # Perhaps it was cut since, also for a try that was rolled back.
            parts = [part for part in self._leases.spans.values() if span.lo <= part.lo <= span.hi]
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
        spans = await self._moving(batch, reached)
        known = {span.lo for span in spans}
        passed = [span for span in self.member.take_unwritten() if span.lo not in known]
        self.moved_at = asyncio.get_running_loop().time()
        values = {**moves([*spans, *passed], again=True), "release": release}
        if batch.deferrals:
            values |= as_columns(batch.deferrals)
        lost = await self._write("advance" if batch.deferrals else "move", values, [*spans, *passed])
        gone = {span.lo for span in lost}
        kept = [span for span in spans if span.lo not in gone]
        if gone:
            slots = {slot for span in kept for slot in range(span.lo, span.hi + 1)}
            self._drop_lost(batch, {delivery.position for delivery, _, _ in batch.ended if delivery.slot in slots})
        self._defer(batch, spans)

    def _defer(self, batch: Batch, spans: Sequence[Span]) -> None:
        batch.spans = [span.settled() for span in spans if span.lo in self._leases.spans]
        now = asyncio.get_running_loop().time()
        for deferral in batch.deferrals:
            self._blocked.put(deferral, now)

    async def _settle_deferrals(self, batch: Batch) -> None:
        if batch.deferrals or batch.done:
            values = self._deferral_values(batch, batch.done)
            rows = await self._persist(self._deferrals["settle_deferred"], values, lock_seconds=LOCK_SECONDS)
            self._drop_lost(batch, set(column(rows)))
        await self.load_blocked()

    async def load_blocked(self) -> None:
        """Learn which keys wait in the slots that are held."""
        values = {**self.member.group.values, **ranges_of(self._leases.spans.values())}
        rows = await self._persist(self._deferrals["blocked_or_parked" if self._blocked.hold else "blocked"], values)
        self._blocked.load(named(BlockedKey, rows), asyncio.get_running_loop().time())

    async def give_up(self, keys: Sequence[str]) -> None:
        """End what waits under these keys and is not there any more."""
        group = self.member.group
        rows = await self._persist(self._deferrals["drop_missed"], {**group.values, "keys": keys})
        if rows:
            self.emit(events.MessagesMissed(group.name, group.uri, tuple(sorted(column(rows)))))
        await self.load_blocked()

    def _deferral_values(self, batch: Batch, done: Sequence[int]) -> dict[str, Any]:
        held = self._leases
        return {**held.values, **leases(held.spans.values()), **as_changes(batch.deferrals, done)}

    async def settle_within(self, session: AnySession, batch: Batch, reached: Cursor, done: Sequence[int]) -> None:
        """Write what became of a batch in a handler's own transaction, or raise `LeaseLost`: the fence.

        `done` are the positions that are handled, of those that were deferred before.
        """
        opened = await caller_connection(session, self._client.tables.log)
        names = LogNames.of(self._client.tables, opened.schema_map)
        if batch.is_deferred:
            statement, values = statements("deferred", names)["settle_deferred"], self._deferral_values(batch, done)
            expected = {*done, *(deferral.position for deferral in batch.deferrals)}
            self._within = Written(list(self._leases.spans.values()), tuple(done), tuple(batch.deferrals))
        else:
            spans = await self._moving(batch, reached)
            # Not again: a try whose COMMIT succeeded without our hearing of it must not have its effects twice.
            values = {
                **self._leases.values,
                **moves(spans, again=False),
                **as_columns(batch.deferrals),
                "release": False,
            }
            statement = statements("group", names)["advance"]
            expected = {span.lo for span in spans}
            self._within = Written(spans)
        written = set(column(await opened.fetch(statement, values))) if expected else set()
        self._check_fence(expected, written, batch)

    async def lock_within(self, session: AnySession, batch: Batch) -> None:
        """Hold a batch's spans in a handler's own transaction until it ends, or raise `LeaseLost`.

        A transaction above READ COMMITTED needs this first: a renewal meanwhile would be in conflict with its settle.
        """
        for slot in batch.halts:
            # Now, because a span that is held cannot be cut.
            await self._leases.isolate(slot)
        held = list(self._leases.spans.values())
        if not batch.is_deferred:
            held = [part for part in held if any(span.lo <= part.lo <= span.hi for span in batch.spans)]
        opened = await caller_connection(session, self._client.tables.log)
        names = LogNames.of(self._client.tables, opened.schema_map)
        rows = await opened.fetch(statements("group", names)["lock_spans"], {**self._leases.values, **leases(held)})
        self._check_fence({span.lo for span in held}, set(column(rows)), batch)

    def _check_fence(self, expected: set[int], found: set[int], batch: Batch) -> None:
        if found == expected:
            return
        self._lost(batch.spans if not batch.is_deferred else list(self._leases.spans.values()))
        msg = f"Group {self.member.group.name!r} lost its lease on these messages; roll this transaction back."
        raise LeaseLost(msg)

    def _lost(self, spans: Sequence[Span]) -> None:
        self.member.doubt()
        self._leases.lose(spans)

    async def commit(self, session: AsyncSession) -> None:
        """Commit the transaction that `settle_within` wrote in, or raise; whether it came about is found out."""
        await commit(session, self._fate, lambda error: self.emit(events.StatementFailed("committing", error)))

    async def _fate(self) -> Fate:
        """What became of the transaction that `settle_within` wrote in last."""
        written = self._within
        if written is None:
            return Fate.ROLLED_BACK
        sql, values = self._groups, {**self.member.group.values, **written.values}
        steps = [(sql["spans_still_ours"], values), (sql["still_deferred"], values)]
        # Ends with the first that finds nothing.
        spans, *deferred = await self._client.connection.fetch_each(steps if written.positions else steps[:1])
        left = [row for rows in deferred for row in named(StillDeferred, rows)]
        return fate_of(written, self._leases.me, named(LockedSpan, spans), left)

    async def committed(self, batch: Batch, reached: Cursor) -> None:
        """The transaction that `settle_within` wrote in has committed."""
        if batch.is_deferred:
            await self.load_blocked()
        else:
            spans = await self._moving(batch, reached)
            self._leases.moved(spans, [span.lo for span in spans])
            self._defer(batch, spans)
        self._tell(batch)
        batch.forget()

    async def note(self, slot: int, position: int | None) -> int | None:
        """Note which message of a slot is about to run, or that none is; how often owners died with it.

        None if the slot is not ours any more.
        """
        span = self._leases.span_of(slot)
        if span is None:
            return None
        values = {**self._leases.values, "lo": span.lo, "epoch": span.epoch, "suspect": position}
        noted = column(await self._persist(self._groups["note"], values))
        if not noted:
            self._lost([span])
            return None
        (crashes,) = noted
        return int(crashes)

    async def _write(self, name: str, values: dict[str, Any], spans: Sequence[Span]) -> list[Span]:
        # A lock on a row of ours is somebody's who puts the group elsewhere: then it is not ours any more.
        lock_seconds = LOCK_SECONDS if name == "advance" else None
        rows = await self._persist(self._groups[name], {**self._leases.values, **values}, lock_seconds=lock_seconds)
        lost = self._leases.moved(spans, column(rows))
        if lost:
            self.member.doubt()
        if values["release"]:
            for span in spans:
                self._leases.spans.pop(span.lo, None)
        return lost

    async def _persist(
        self, statement: Statement, values: dict[str, Any], *, lock_seconds: float | None = None
    ) -> Sequence[Row]:
        return await self._client.persist(statement, values, lock_seconds, is_stopping=lambda: self.member.is_stopping)

    def _tell(self, batch: Batch) -> None:
        """Report what became of messages, now that it is written."""
        is_told = self.is_heard(events.Handled)
        for delivery, outcome, duration in batch.ended:
            was_started, delivery.is_running = delivery.is_running, False
            if not is_told and isinstance(outcome, Done | Settled):
                continue
            kind, more = closing(outcome, duration, kept=True, was_started=was_started, age=_age_of(delivery))
            event = kind(*self.member.named(delivery), group=self.member.group.name, **more)
            self.emit(event)
        batch.passed += sum(deferral.state == DEFERRED for deferral in batch.deferrals)
        if self.reported is not None:
            self.reported(batch.ended)

    def _drop_lost(self, batch: Batch, written: set[int]) -> None:
        """Report messages that were not ours any more, and leave them out: all but those of these positions."""
        lost = [delivery for delivery, _, _ in batch.ended if delivery.position not in written]
        for delivery in lost:
            delivery.is_running = False
            message = self.member.named(delivery)
            self.emit(events.LeaseWasLost(*message, "settling", group=self.member.group.name))
        if lost:
            batch.ended = [ended for ended in batch.ended if ended[0].position in written]


def _age_of(delivery: Delivery) -> float:
    """Seconds since it was published; never less than nothing, whatever the clocks say."""
    return max(0.0, (datetime.now(UTC) - delivery.created_at).total_seconds())

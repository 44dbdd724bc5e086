"""An executor: a batch on its way through a handler; every message gets its turn, its outcome, and a place to wait.

A failure blocks its key and nothing else: what follows it under the same key is deferred, in order, and the cursor
moves on. A transient error of the database puts off without counting. Nothing is open while a handler runs, and what
is done is written whatever is cancelled meanwhile.

Messages of a slot whose owner died run under the crash guard: each is noted before its call, and written at once after
it. A suspect, which was noted when an owner died, runs while no other suspect of the process does: whoever ran beside
the guilty one is not blamed again. After `crash_limit` deaths in a row it is parked.

Driven by `worker`, `transactional`, `dispatching` and `Outbox.dispatch`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from functools import partial
from time import perf_counter

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.caller import AnySession
from faststream_outbox._internal.connections.transactions import begin
from faststream_outbox._internal.log.blocked import DEFERRED, PARKED, Deferral, deferral_of, failed_together
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.member import Batch, Member
from faststream_outbox._internal.log.settler import Settler
from faststream_outbox._internal.log.sharing.slots import Cursor
from faststream_outbox._internal.outcomes.calling import ended
from faststream_outbox._internal.outcomes.outcome import (
    CRASH_LOOP,
    NOT_READABLE,
    SETTLED,
    Dead,
    Done,
    Outcome,
    Release,
    Retry,
    Settled,
)
from faststream_outbox._internal.service import unbroken
from faststream_outbox.errors import CrashLoop

Call = Callable[[Delivery], Awaitable[Outcome]]
BatchCall = Callable[[Sequence[Delivery]], Awaitable[Sequence[Outcome]]]

SETTLE_SECONDS = 0.25
"""Progress is written at least this often while a batch takes its time."""


class BatchRun:
    """One batch on its way through a handler."""

    def __init__(self, member: Member, settler: Settler, batch: Batch) -> None:
        self.member = member
        self.settler = settler
        self.batch = batch
        self.reached: Cursor | None = None
        """The place behind the last message that is dealt with."""
        self._all_at_once = False
        self._held_up: set[str] = set()
        self._written_up: set[str] = set()
        self._written_halts: dict[int, Cursor] = {}
        self._unwritten: Counter[str] = Counter()
        self._report = settler.is_heard(events.Started)
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self._settled_at = loop.time()

    async def run(self, call: Call, *, release: bool = False) -> None:
        """Handle the messages one by one, and settle."""
        try:
            await self._run_each(call, release=release)
        finally:
            self._close()

    async def _run_each(self, call: Call, *, release: bool) -> None:
        member, batch = self.member, self.batch
        is_whole = True
        try:
            for delivery in batch.deliveries:
                if member.is_stopping:
                    is_whole = False
                    break
                if self.may_run(delivery) and not await self._one(delivery, call):
                    is_whole = False
                    break
                self.reached = delivery.cursor
                if member.is_unsettled and delivery is not batch.deliveries[-1]:
                    # Slots may have to change hands: others must not wait for a whole batch of slow messages.
                    is_whole = False
                    break
                if self.is_time_to_settle():
                    await self.write()
        except BaseException:
            # Cancelled: what is done must not come again.
            await self.finish(is_whole=False, release=release)
            raise
        await self.finish(is_whole=is_whole, release=release)

    async def run_whole(self, call: BatchCall, *, release: bool = False) -> None:
        """Hand all messages to the handler at once, and settle; one by one where all of them failed together."""
        try:
            await self._run_whole(call, release=release)
        finally:
            self._close()

    async def _run_whole(self, call: BatchCall, *, release: bool) -> None:
        decided: dict[int, Outcome] = {}

        async def alone(delivery: Delivery) -> Outcome:
            known = decided.get(delivery.position)
            return (await call([delivery]))[0] if known is None else known

        if any(self.member.needs_note(delivery) for delivery in self.batch.deliveries):
            await self.run(alone, release=release)
            return
        self._all_at_once = True
        ready = [delivery for delivery in self.batch.deliveries if self.may_run(delivery)]
        began, duration = perf_counter(), 0.0
        outcomes: Sequence[Outcome] = []

        async def cancelled(error: asyncio.CancelledError) -> Sequence[Outcome]:
            if _are_settled(ready):
                self._end_all(ready, [SETTLED] * len(ready), perf_counter() - began)
                await self.committed(self.batch.end)
            else:
                await self.finish(is_whole=False, release=release)
            raise error

        def failed(error: BaseException) -> Sequence[Outcome]:
            return [_failed(ready, error)] * len(ready)

        if ready:
            for delivery in ready:
                self._start(delivery)
            outcomes, duration = await ended(call, ready, failed=failed, cancelled=cancelled)
        if failed_together(outcomes):
            # Only the guilty one may have an attempt counted, and be parked in the end.
            self._all_at_once = False
            self.begin_again()
            for delivery, outcome in zip(ready, outcomes, strict=True):
                if isinstance(outcome, Retry | Dead):
                    delivery.undecide()
                else:
                    decided[delivery.position] = outcome
            await self.run(alone, release=release)
            return
        if any(isinstance(outcome, Release) for outcome in outcomes):
            await self.finish(is_whole=False, release=release)
            return
        if any(isinstance(outcome, Settled) for outcome in outcomes):
            self._end_all(ready, outcomes, duration)
            await self.committed(self.batch.end)
            return
        for delivery, outcome in zip(ready, outcomes, strict=True):
            if not isinstance(outcome, Done | Settled) and delivery.uri in self._held_up:
                self._defer(delivery)
            else:
                self.end(delivery, outcome, duration)
        await self.finish(is_whole=True, release=release)

    def _end_all(self, deliveries: Sequence[Delivery], outcomes: Sequence[Outcome], duration: float) -> None:
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            self.end(delivery, outcome, duration)

    def begin_again(self) -> None:
        """Forget what became of messages and was not written: their transaction has been rolled back."""
        batch = self.batch
        batch.forget()
        self._held_up, batch.halts = set(self._written_up), dict(self._written_halts)
        self._unwritten.clear()

    def written(self) -> None:
        """What became of messages is written now."""
        self._written_up |= self._held_up
        self._written_halts = dict(self.batch.halts)
        self._unwritten.clear()

    def may_run(self, delivery: Delivery) -> bool:
        """Whether it may run: its slot is held, nothing of its key waits in front of it, and it could be read."""
        member, batch = self.member, self.batch
        if delivery.slot in batch.halts or not member.leases.holds(delivery.slot):
            return False
        if delivery.uri in self._held_up or (not batch.is_deferred and delivery.uri in member.blocked):
            waiting = member.blocked.waiting(delivery.uri) + self._unwritten[delivery.uri]
            if not batch.is_deferred and waiting >= member.blocked.most:
                self._halt(delivery, waiting)
            else:
                self._defer(delivery)
            return False
        if delivery.is_left_out:
            # Nobody can handle it, and what comes after it must not wait for that.
            self.end(delivery, Dead(NOT_READABLE, self.settler.error_of(delivery.position)))
            return False
        return True

    def _defer(self, delivery: Delivery) -> None:
        if not self.batch.is_deferred:
            place = (delivery.position, delivery.tick, delivery.slot, delivery.uri)
            self.batch.deferrals.append(Deferral(*place, DEFERRED))
            self._unwritten[delivery.uri] += 1

    def _halt(self, delivery: Delivery, waiting: int) -> None:
        member = self.member
        self.batch.halts[delivery.slot] = Cursor(delivery.tick, delivery.position - 1)
        self.settler.emit(events.KeyHalted(member.group.name, member.group.uri, delivery.uri, waiting))

    async def _one(self, delivery: Delivery, call: Call) -> bool:
        """Run the handler on one message; False if it was not handled and comes again as it is."""
        if self.member.needs_note(delivery):
            return await self.guarded(delivery, lambda: self._attempt(delivery, call))
        return await self._attempt(delivery, call)

    async def guarded(self, delivery: Delivery, run: Callable[[], Awaitable[bool]]) -> bool:
        """Run one message under a note of it, or park it; False if it was not handled and comes again as it is."""
        async with self.settler.suspicion() if self.member.is_suspect(delivery) else nullcontext():
            may_run = await self.noted(delivery)
            if may_run is None or (may_run and not await run()):
                return False
            await self.survived(delivery)
            return True

    async def noted(self, delivery: Delivery) -> bool | None:
        """Note that a message is about to run; False if it is over, as owners died with it, None if it is lost."""
        crashes = await self.settler.note(delivery.slot, delivery.position)
        if crashes is None or crashes < self.member.options.crash_limit:
            return None if crashes is None else True
        self.end(delivery, Dead(CRASH_LOOP, CrashLoop(crash_message(crashes))))
        return False

    async def survived(self, delivery: Delivery) -> None:
        """Write what became of a message at once: if the next one ends the process, this one must not come again."""
        self.reached = delivery.cursor
        await self.write()
        if self.batch.is_deferred:
            # No cursor was moved, which would have taken the note away.
            await self.settler.note(delivery.slot, None)
        self.member.survived(delivery)

    async def _attempt(self, delivery: Delivery, call: Call) -> bool:
        self._start(delivery)
        failed, cancelled = partial(_failed, [delivery]), partial(self._cancelled, delivery, perf_counter())
        outcome, duration = await ended(call, delivery, failed=failed, cancelled=cancelled)
        if isinstance(outcome, Release):
            return False
        self.end(delivery, outcome, duration)
        if isinstance(outcome, Settled):
            await self.committed(delivery.cursor)
        return True

    async def _cancelled(self, delivery: Delivery, began: float, error: asyncio.CancelledError) -> Outcome:
        """A failed attempt, if the handler cancelled itself; else raised, after what was done is taken note of."""
        task = asyncio.current_task()
        if not self.member.is_stopping and (task is None or not task.cancelling()):
            return Retry(error=error)
        if _are_settled([delivery]):
            self.end(delivery, SETTLED, perf_counter() - began)
            await self.committed(delivery.cursor)
            self.reached = delivery.cursor
        raise error

    async def settle_within(self, session: AnySession, deliveries: Sequence[Delivery]) -> None:
        """Finish messages in their handler's own transaction, with all that came before them; or raise `LeaseLost`."""
        reached = self.batch.end if self._all_at_once else deliveries[0].cursor
        # Not noted in the batch: the commit may yet fail.
        done = [delivery.position for delivery in deliveries]
        await self.settler.settle_within(session, self.batch, reached, [*self.batch.done, *done])

    async def begin_within(self, session: AsyncSession) -> None:
        """Begin the transaction in which messages will be handled and finished, or raise `LeaseLost`."""
        await begin(session, lambda: self.lock_within(session))

    async def lock_within(self, session: AsyncSession) -> bool:
        """Hold the batch's spans where the transaction would not see that they were renewed; whether it is so."""
        is_strict = await self.settler.isolation.is_strict(session)
        if is_strict:
            await self.settler.lock_within(session, self.batch)
        return is_strict

    def doubt_isolation(self) -> None:
        """There was a conflict: the level of its transactions is asked for again."""
        self.settler.isolation.doubt()

    async def commit(self, session: AsyncSession) -> None:
        """Commit the transaction that `settle_within` wrote in, or raise."""
        await self.settler.commit(session)

    async def committed(self, reached: Cursor) -> None:
        """Take note of a transaction that has committed, whatever is cancelled meanwhile."""
        await unbroken(self.settler.committed(self.batch, reached))
        self.written()

    def _start(self, delivery: Delivery) -> None:
        delivery.batch_run = self
        if self._report and not delivery.is_running:
            delivery.is_running = True
            member = self.member
            size, message = len(delivery.payload), member.named(delivery)
            self.settler.emit(events.Started(*message, size, group=member.group.name))

    def _close(self) -> None:
        """Report those that began and of which nothing is written: whoever counts what runs must know of their end."""
        if not self._report:
            return
        member = self.member
        with_outcome = {delivery.position for delivery, _, _ in self.batch.ended}
        for delivery in self.batch.deliveries:
            if delivery.is_running:
                delivery.is_running = False
                message = member.named(delivery)
                is_decided = delivery.position in with_outcome
                group = member.group.name
                self.settler.emit(
                    events.Abandoned(*message, group=group)
                    if is_decided
                    else events.Released(*message, was_started=True, group=group)
                )

    def end(self, delivery: Delivery, outcome: Outcome, duration: float = 0.0) -> None:
        """Note what became of a message."""
        batch = self.batch
        if isinstance(outcome, Done | Settled):
            if batch.is_deferred and isinstance(outcome, Done):
                batch.done.append(delivery.position)
            batch.ended.append((delivery, outcome, duration))
            return
        deferral, final = deferral_of(delivery, outcome, self.member.options, self.settler.describe)
        batch.ended.append((delivery, final, duration))
        if deferral is None:
            if batch.is_deferred:
                batch.done.append(delivery.position)
            return
        batch.deferrals.append(deferral)
        if deferral.state != PARKED or self.member.blocked.hold:
            self._held_up.add(delivery.uri)
            self._unwritten[delivery.uri] += 1

    def is_time_to_settle(self) -> bool:
        """Whether progress should be written although the batch is not over."""
        return self._time() - self._settled_at > SETTLE_SECONDS

    async def write(self) -> None:
        """Write how far the batch has come, whatever is cancelled meanwhile."""
        await unbroken(self._write(), self._write)

    async def _write(self) -> None:
        if self.reached is not None:
            await self.settler.settle(self.batch, self.reached)
        self.written()
        self._settled_at = self._time()

    async def finish(self, *, is_whole: bool, release: bool) -> None:
        """Write how far the batch came, whatever is cancelled meanwhile: what is done must not come again."""
        finish = partial(self._finish, is_whole=is_whole, release=release)
        await unbroken(finish(), finish)

    async def _finish(self, *, is_whole: bool, release: bool) -> None:
        member, batch = self.member, self.batch
        reached = batch.end if is_whole else self.reached
        if reached is not None or batch.is_deferred:
            await self.settler.settle(batch, reached or batch.end, release=release)
        elif release:
            await member.leases.release()


def _are_settled(deliveries: Sequence[Delivery]) -> bool:
    """Whether their own transaction has committed."""
    return all(isinstance(delivery.decision, Settled) for delivery in deliveries)


def _failed(deliveries: Sequence[Delivery], error: BaseException) -> Outcome:
    """A failed attempt, unless their transaction had just committed when their time was over."""
    return SETTLED if _are_settled(deliveries) else Retry(error=error)


def crash_message(crashes: int) -> str:
    """What an operator reads of a parked message."""
    return (
        f"crash_loop: {crashes} processes in a row died while this message ran. "
        "Repair the handler, then let it run again with Outbox.parked.retry(…), or end it with skip(…)."
    )

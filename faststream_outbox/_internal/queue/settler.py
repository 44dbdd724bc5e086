"""Writes outcomes: at most one statement in flight, with all of a kind that has ended meanwhile.

Lightly loaded it adds no latency, heavily loaded it batches hundreds, without a timer or a knob.
Every write carries the lease's token, so a worker that lost its lease changes nothing. When the
connection dies the same outcomes are written again on a fresh one; the token makes that safe. What one
kind or one message has to wait for holds up no other. A message whose outcome the server
refuses again and again, because of its data, is set apart instead of running for ever. Runs as a service of the client.
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.cause import is_fault_of_data, is_locked
from faststream_outbox._internal.connections.dedicated import Connection
from faststream_outbox._internal.engine import closing
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.outcomes.failure import Renderer
from faststream_outbox._internal.outcomes.outcome import Dead, Done, FinalOutcome, Release, Retry, Settled
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.pending import (
    Apart,
    Ended,
    Pending,
    kind_of,
    setting_apart,
    settling,
    written_before,
)
from faststream_outbox._internal.service import Pulse, called
from faststream_outbox._internal.sql.queue_rows import RemainingRow
from faststream_outbox._internal.sql.statements import Statements, named

if TYPE_CHECKING:
    from faststream_outbox._internal.queue.worker import Worker


SAY_AGAIN_SECONDS = 30.0
"""An outage that goes on is reported again after this time, then after twice that time, and so on."""
LONGEST_SILENCE = 3600.0

LAST_SECONDS = 2.0
"""How long the last outcomes of a program that ends without a stop may take."""


class Settler:
    """Collects outcomes and writes them."""

    def __init__(
        self,
        connection: Connection,
        sql: Statements,
        events: Events,
        *,
        has_dead_letters: bool,
        renderer: Renderer | None = None,
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._events = events
        self._keeps_dead = has_dead_letters
        self._renderer = renderer
        # What is given back comes last: who hears of it finds that nothing in front of it is held any more.
        self._kinds: dict[type[Any], Pending] = {kind: Pending() for kind in (Done, Settled, Retry, Dead, Release)}
        self._writing: list[Ended] = []
        self._unsure: set[Claim] = set()
        self._failing_since: dict[Pending, float] = {}
        self._said = ""
        self._say_at = 0.0
        self._silence = SAY_AGAIN_SECONDS
        self._wake = asyncio.Event()
        self.pulse: Pulse = Pulse()
        self._waiting_since: float | None = None

    @property
    def outage_since(self) -> float | None:
        """Since when outcomes cannot be written, on the event loop's clock; None while they can."""
        return min(self._failing_since.values(), default=None)

    @property
    def waiting_since(self) -> float | None:
        """Since when outcomes wait and none was written, on the clock of `monotonic`; None if none waits."""
        return self._waiting_since

    @property
    def backlog(self) -> int:
        """Outcomes not yet written."""
        return sum(map(len, self._kinds.values())) + len(self._writing)

    def put(self, claim: Claim, outcome: FinalOutcome) -> None:
        """Write this outcome as soon as possible."""
        self._kinds[type(outcome)].fresh.append((claim, outcome))
        if self._waiting_since is None:
            self._waiting_since = monotonic()
        self._wake.set()

    async def run(self) -> None:
        """Write until cancelled, and then what has ended already."""
        try:
            await self._run()
        except asyncio.CancelledError:
            # A program that ends without a stop cancels everything at once: what was handled must not come again.
            await self._write_rest()
            raise

    async def _write_rest(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LAST_SECONDS):
                for pending in self._kinds.values():
                    while group := pending.take(loop.time()):
                        await self._settle(group)
        except Exception as error:  # noqa: BLE001 - reported; it is left to its lease
            self._events.emit(events.StatementFailed("settle", error))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            self.pulse.beat()
            now = loop.time()
            worked = False
            # One statement of each kind in turn, then one that failed alone: none holds up another.
            for pending in self._kinds.values():
                if group := pending.take(now):
                    worked = True
                    await self._write(pending, group)
            for pending in self._kinds.values():
                if (apart := pending.take_apart(now)) is not None:
                    worked = True
                    await self._write_apart(pending, apart)
            if not worked:
                await self._sleep(now)

    async def _sleep(self, now: float) -> None:
        until = min(pending.wakes_at() for pending in self._kinds.values())
        self.pulse.rest(until - now)
        if until == float("inf"):
            self._waiting_since = None
        if until > now:
            await called(self._wake, until)

    def give_up(self, worker: "Worker") -> list[Claim]:
        """Forget what this worker could not get written; its claims stay leased until their leases end."""
        left = [claim for claim, _ in self._writing if claim.worker is worker]
        for pending in self._kinds.values():
            left += pending.give_up(worker)
        for claim in left:
            claim.is_abandoned = True
            self._unsure.discard(claim)
        return left

    async def write(self, ended: Sequence[Ended]) -> None:
        """Write these outcomes now, once; for whoever has no loop running."""
        kinds: dict[type[Any], list[Ended]] = {}
        for claim, outcome in ended:
            kinds.setdefault(type(outcome), []).append((claim, outcome))
        for items in kinds.values():
            self._close(items, await self._send(items))

    async def _write(self, pending: Pending, group: list[Ended]) -> None:
        error, is_connected = await self._tried(group, self._settle)
        now = asyncio.get_running_loop().time()
        if error is None:
            self._wrote(pending, now)
            return
        left = [(claim, outcome) for claim, outcome in group if not claim.is_abandoned]
        if is_connected and is_fault_of_data(error):
            pending.refused(left, now)
        elif is_connected and is_locked(error):
            pending.blocked(left, now)
        else:
            pending.failed(left, now, is_connected=is_connected)
            self._failed(pending, now, error)

    async def _write_apart(self, pending: Pending, apart: Apart) -> None:
        was_given_up = apart.error is not None
        if was_given_up:
            error, is_connected = await self._tried([apart.item], lambda _: self._set_apart(apart))
        else:
            error, is_connected = await self._tried([apart.item], self._settle)
        now = asyncio.get_running_loop().time()
        claim = apart.claim
        if error is None:
            pending.over(apart)
            self._wrote(pending, now)
        elif claim.is_abandoned:
            pending.over(apart)
        elif is_connected and is_fault_of_data(error):
            pending.refused_apart(apart, now, error)
            if apart.error is not None and not was_given_up:
                refused = events.OutcomeRefused(claim.queue, claim.worker.name, claim.id, claim.deliveries_count, error)
                self._events.emit(refused)
        elif is_connected and is_locked(error):
            pending.blocked_apart(apart, now)
            self._failed(pending, now, error)
        else:
            pending.failed_apart(apart, now)
            self._failed(pending, now, error)

    async def _tried(self, group: list[Ended], write: Callable[[list[Ended]], Any]) -> tuple[Exception | None, bool]:
        """The error, if it failed, and whether there was a connection by then."""
        self._writing = group
        self.pulse.beat()
        is_connected = False
        try:
            # Apart from the statement: what is refused while connecting says nothing about a message.
            if not self._connection.is_open:
                await self._connection.open()
            is_connected = True
            await write(group)
        except Exception as error:  # noqa: BLE001 - reported, and tried again
            self._unsure.update(claim for claim, _ in group)
            return error, is_connected
        except BaseException:
            left = [(claim, outcome) for claim, outcome in group if claim in claim.worker.unsettled]
            self._kinds[kind_of(group)].put_back(left)
            self._unsure.update(claim for claim, _ in left)
            raise
        finally:
            self._writing = []
        return None, True

    async def _settle(self, group: list[Ended]) -> None:
        written = await self._send(group)
        if len(written) < len(group):
            # Whoever writes to a row at the same moment moves it from where it was found: the next statement sees it.
            written |= await self._send([(claim, outcome) for claim, outcome in group if claim.id not in written])
        if self._unsure:
            missing = {
                claim.id: outcome for claim, outcome in group if claim in self._unsure and claim.id not in written
            }
            if missing:
                # An earlier try of theirs may have been written before its answer was lost.
                rows = await self._connection.fetch(self._sql["remains"], {"ids": list(missing)})
                stays = {row.id: row.is_held for row in named(RemainingRow, rows)}
                written |= {number for number, outcome in missing.items() if written_before(number, outcome, stays)}
            self._unsure.difference_update(claim for claim, _ in group)
        self._close(group, written)

    async def _send(self, items: list[Ended]) -> set[int]:
        statement = settling(items, keeps_dead=self._keeps_dead, renderer=self._renderer)
        if statement is None:
            return {claim.id for claim, _ in items}
        name, values = statement
        if isinstance(items[0][1], Retry):
            now = asyncio.get_running_loop().time()
            for claim, _ in items:
                if claim.retried_at is None:
                    claim.retried_at = now
        # Where an outcome says more of a message than its id, the id comes first.
        return {number for number, *_ in await self._connection.fetch(self._sql[name], values)}

    async def _set_apart(self, apart: Apart) -> None:
        assert apart.error is not None
        rows = await self._connection.fetch(self._sql["settle_apart"], setting_apart(apart.item, apart.error))
        claim, outcome = apart.item
        self._unsure.discard(claim)
        claim.worker.settled(claim, outcome, lost=not rows)

    def _wrote(self, pending: Pending, now: float) -> None:
        pending.wrote()
        if self._waiting_since is not None:
            self._waiting_since = monotonic()
        if self._failing_since and pending in self._failing_since:
            since = min(self._failing_since.values())
            del self._failing_since[pending]
            if not self._failing_since:
                self._said, self._say_at, self._silence = "", 0.0, SAY_AGAIN_SECONDS
                self._events.emit(events.StatementWorks("settle", now - since))

    def _failed(self, pending: Pending, now: float, error: Exception) -> None:
        # All kinds fail alike where the server is away or a right is missing: that is one piece of news.
        is_news = pending not in self._failing_since and repr(error) != self._said
        self._failing_since.setdefault(pending, now)
        if is_news or now >= self._say_at:
            self._said, self._say_at = repr(error), now + self._silence
            self._silence = min(2 * self._silence, LONGEST_SILENCE)
            self._events.emit(events.StatementFailed("settle", error))

    def _close(self, items: Sequence[Ended], written: set[int]) -> None:
        is_done_heard = events.Handled in self._events
        for claim, outcome in items:
            lost = claim.id not in written
            claim.worker.settled(claim, outcome, lost=lost)
            if lost or is_done_heard or type(outcome) is not Done:
                self._tell(claim, outcome, lost=lost)

    def _tell(self, claim: Claim, outcome: FinalOutcome, *, lost: bool) -> None:
        if claim.is_abandoned or (lost and claim.is_lost):
            return
        kind: type[Any] = events.LeaseWasLost
        more: dict[str, Any] = {"phase": "settling"}
        if not lost:
            started, age = claim.was_started, claim.age
            kind, more = closing(outcome, claim.duration, kept=self._keeps_dead, was_started=started, age=age)
        if kind in self._events:
            self._events.emit(kind(claim.queue, claim.worker.name, claim.id, claim.deliveries_count, **more))

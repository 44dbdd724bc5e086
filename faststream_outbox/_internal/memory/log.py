"""Topics in memory, for tests: what was published, how far each group has come with it, and attempts at messages.

The order of the log is that of the commits. A group that failed with a message keeps its key waiting, as on
PostgreSQL; slots are held by whoever handles a message of theirs, and by nobody else. An attempt ends as one of the
log's engine does: outcomes, retries, parking, and a batch of which only the guilty message fails. Sequencing, leases
and members are left to the tests on PostgreSQL. Used by the test broker, which calls handlers at once or in loops.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, NoReturn

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.caller import AnySession
from faststream_outbox._internal.engine import closing
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.log.admin.parked import DeferredMessage
from faststream_outbox._internal.log.blocked import PARKED, RETRY, failed_together, put_off
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.message import OutboxMessage, checked
from faststream_outbox._internal.log.options import Start
from faststream_outbox._internal.log.sharing.slots import matches
from faststream_outbox._internal.memory.tables import NEVER, MemoryClock
from faststream_outbox._internal.outcomes.calling import ended
from faststream_outbox._internal.outcomes.failure import Failure, Renderer, described
from faststream_outbox._internal.outcomes.outcome import (
    SETTLED,
    Dead,
    FinalOutcome,
    Outcome,
    Release,
    Retry,
    Settled,
    resolved,
)
from faststream_outbox._internal.sql.log_rows import ReadMessage
from faststream_outbox.errors import DuplicateMessage


class MemoryLog:
    """What was published to topics; `messages` shows what is committed of it."""

    def __init__(self, clock: MemoryClock | None = None) -> None:
        self.clock: MemoryClock = clock or MemoryClock()
        self.rows: list[ReadMessage] = []
        self.messages: list[OutboxMessage] = []
        self.groups: dict[tuple[str, str], MemoryGroup] = {}
        self._positions = count(1)

    def append(
        self, messages: Sequence[OutboxMessage], on_duplicate: str = "error", own: Iterable[ReadMessage] = ()
    ) -> list[ReadMessage]:
        """Rows of messages, as the table would have them; not committed yet."""
        now = datetime.now(UTC)
        rows: list[ReadMessage] = []
        taken = {row.event_id for row in (*self.rows, *own)} - {None}
        for message in map(checked, messages):
            if message.event_id in taken:
                if on_duplicate == "error":
                    msg = (
                        f"Published before, by event_id: {message.given_id}. Nothing of this call was published. Pass "
                        "on_duplicate='ignore' to leave out what is there already."
                    )
                    raise DuplicateMessage(msg)
                continue
            taken |= {message.event_id} - {None}
            position = next(self._positions)
            rows.append(
                ReadMessage(
                    tick=1,
                    position=position,
                    uri=message.uri,
                    slot=message.slot,
                    payload=message.payload,
                    body=message.body,
                    metadata=message.metadata,
                    event_id=message.event_id,
                    created_at=now,
                    transaction_id=position,
                    found=1,
                    size=0,
                )
            )
        return rows

    def keep(self, rows: Iterable[ReadMessage]) -> None:
        """Their transaction has committed."""
        added = list(rows)
        self.rows += added
        self.messages += [Delivery(row, "").shown for row in added]

    def drop(self, rows: Iterable[ReadMessage]) -> None:
        """Their transaction was rolled back."""
        positions = {row.position for row in rows}
        self.rows[:] = [row for row in self.rows if row.position not in positions]
        self.messages[:] = [message for message in self.messages if message.position not in positions]

    def group(self, name: str, topic: str, start: Start = "earliest") -> "MemoryGroup":
        """A group of a topic; one that has never read begins at `start`."""
        known = self.groups.get((name, topic))
        if known is None:
            known = self.groups[name, topic] = MemoryGroup(self, name, topic)
            if start != "earliest":
                known.handled = {row.position for row in self.rows if start == "latest" or row.created_at < start}
        return known


@dataclass(slots=True)
class Waiting:
    """A message that failed, until it comes again."""

    state: str
    attempts: int
    first_attempt_at: datetime
    updated_at: datetime
    due_at: datetime
    failure: Failure


class MemoryGroup:
    """What one group has read of a topic, and what waits in it."""

    def __init__(self, log: MemoryLog, name: str, topic: str) -> None:
        self.log = log
        self.name = name
        self.topic = topic
        self.handled: set[int] = set()
        self.waiting: dict[int, Waiting] = {}
        self.busy: set[int] = set()
        """Slots whose messages somebody has in flight."""

    def ready(self, *, hold: bool, only: Sequence[ReadMessage] | None = None) -> Iterator[Delivery]:
        """What may be handled now, in order; of `only` these, where nothing comes again."""
        now = self.log.clock.now()
        named = None if only is None else {row.position for row in only}
        blocked: set[str] = set()
        for row in list(self.log.rows):
            position, uri = row.position, row.uri
            if position in self.handled or row.slot in self.busy or not matches(uri, self.topic):
                continue
            waits = self.waiting.get(position)
            if waits is not None and waits.state == PARKED:
                if hold:
                    blocked.add(uri)
            elif waits is not None and (waits.due_at > now or named is not None):
                blocked.add(uri)
            elif uri not in blocked and (named is None or position in named):
                delivery = Delivery(row, self.topic)
                if waits is not None:
                    delivery.attempts, delivery.first_attempt_at = waits.attempts, waits.first_attempt_at
                yield delivery

    def next_due(self) -> float | None:
        """Seconds until something that waits is due."""
        due = [waits.due_at for waits in self.waiting.values() if waits.state == RETRY]
        return (min(due) - self.log.clock.now()).total_seconds() if due else None

    def settle(self, delivery: Delivery, outcome: Outcome, strategy: object, renderer: Renderer | None) -> FinalOutcome:
        """Note what became of a message; that, with nothing left open."""
        now = self.log.clock.now()
        final = resolved(
            put_off(outcome),
            strategy=strategy,
            on_undecided="retry",
            now=now,
            first_attempt_at=delivery.first_attempt_at,
            attempts_count=delivery.attempts + 1,
        )
        first = delivery.first_attempt_at or now
        match final:
            case Retry(delay=delay, error=error, counts=counts):
                due = now + timedelta(seconds=delay or 0.0)
                attempts = delivery.attempts + int(counts)
                self.waiting[delivery.position] = Waiting(RETRY, attempts, first, now, due, described(error, renderer))
            case Dead(error=error):
                attempts = delivery.attempts + 1
                self.waiting[delivery.position] = Waiting(
                    PARKED, attempts, first, now, NEVER, described(error, renderer)
                )
            case Release():
                pass
            case _:
                self.handled.add(delivery.position)
                self.waiting.pop(delivery.position, None)
        return final

    def parked(self) -> list[DeferredMessage]:
        """What has failed for good."""
        found = [(row, self.waiting[row.position]) for row in self.log.rows if row.position in self.waiting]
        return [self._report(row, waits) for row, waits in found if waits.state == PARKED]

    def _report(self, row: ReadMessage, waits: Waiting) -> DeferredMessage:
        failure = waits.failure
        return DeferredMessage(
            group=self.name,
            uri=self.topic,
            position=row.position,
            tick=row.tick,
            key=row.uri,
            state=waits.state,
            attempts=waits.attempts,
            due=None,
            first_attempt_at=waits.first_attempt_at,
            updated_at=waits.updated_at,
            error_type=failure.error_type,
            error_message=failure.error_message,
            traceback=failure.traceback,
            message=Delivery(row, self.topic).shown,
        )

    def seek(self, to: Start) -> None:
        """Read from a place on, also what was read before."""
        self.handled = {
            row.position for row in self.log.rows if to == "latest" or (to != "earliest" and row.created_at < to)
        }
        self.waiting.clear()


class UnleasedEnd:
    """How deliveries end in a handler's own transaction where nobody else could take them over."""

    async def begin_within(self, session: AsyncSession) -> None:
        """Nothing to hold."""
        await session.begin()

    async def settle_within(self, session: AnySession, deliveries: Sequence[Delivery]) -> None:
        """Nothing to write."""

    async def commit(self, session: AsyncSession) -> None:
        """Commit; no answer can be lost."""
        await session.commit()


Call = Callable[[Any], Awaitable[Any]]


class MemoryReader:
    """Makes attempts at a group's messages.

    name: the subscriber's, for events.
    strategy: when a failed message comes again.
    """

    def __init__(
        self, group: MemoryGroup, *, name: str, strategy: object, events: Events, renderer: Renderer | None
    ) -> None:
        self.group = group
        self._name = name
        self._strategy = strategy
        self._events = events
        self._renderer = renderer

    async def read(self, delivery: Delivery, call: Call) -> None:
        """One attempt at a message."""
        with self._in_flight([delivery]):
            failed = partial(_meaning, [delivery])
            outcome, seconds = await ended(call, delivery, failed=failed, cancelled=_pass_on)
            self._end(delivery, outcome, seconds)

    async def read_batch(self, deliveries: Sequence[Delivery], call: Call) -> None:
        """One attempt at several; one by one where all of them failed together."""
        if not deliveries:
            return

        def failed(error: BaseException) -> Sequence[Outcome]:
            return [_meaning(deliveries, error)] * len(deliveries)

        with self._in_flight(deliveries):
            outcomes, seconds = await ended(call, deliveries, failed=failed, cancelled=_pass_on)
            alone = failed_together(outcomes)
            for delivery, outcome in zip(deliveries, outcomes, strict=True):
                if not (alone and isinstance(outcome, Retry | Dead)):
                    self._end(delivery, outcome, seconds)
        if not alone:
            return

        async def call_alone(delivery: Delivery) -> Outcome:
            [outcome] = await call([delivery])
            single: Outcome = outcome
            return single

        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            blocked = {each.uri for each in deliveries if each.position in self.group.waiting}
            if isinstance(outcome, Retry | Dead) and delivery.uri not in blocked:
                delivery.undecide()
                await self.read(delivery, call_alone)

    def _named(self, delivery: Delivery) -> tuple[str, str, int, int]:
        return self.group.topic, self._name, delivery.position, delivery.deliveries_count

    @contextmanager
    def _in_flight(self, deliveries: Sequence[Delivery]) -> Generator[None, None, None]:
        """Keep their slots from everybody else."""
        try:
            for delivery in deliveries:
                delivery.batch_run = UnleasedEnd()
                self.group.busy.add(delivery.slot)
                self._events.emit(events.Started(*self._named(delivery), len(delivery.payload), group=self.group.name))
            yield
        finally:
            self.group.busy -= {delivery.slot for delivery in deliveries}

    def _end(self, delivery: Delivery, outcome: Outcome, seconds: float) -> None:
        """Note what became of a message, and report it."""
        final = self.group.settle(delivery, outcome, self._strategy, self._renderer)
        # What is given back in memory was never another member's.
        if not isinstance(final, Release):
            kind, more = closing(final, seconds, kept=True, was_started=True, age=None)
            self._events.emit(kind(*self._named(delivery), **more, group=self.group.name))


def _meaning(deliveries: Sequence[Delivery], error: BaseException) -> Outcome:
    """What an error of their handler means: a failed attempt, unless all were finished in its own transaction."""
    is_settled = all(isinstance(delivery.decision, Settled) for delivery in deliveries)
    return SETTLED if is_settled else Retry(error=error)


async def _pass_on(error: asyncio.CancelledError) -> NoReturn:
    raise error

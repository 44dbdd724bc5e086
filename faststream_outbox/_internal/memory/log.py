"""Topics in memory, for tests: what was published, and how far each group has come with it.

The order of the log is that of the commits. A group that failed with a message keeps its key waiting, as on
PostgreSQL; slots are held by whoever handles a message of theirs, and by nobody else. Sequencing, leases and members
are left to the tests on PostgreSQL. Used by the test broker.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.connections.caller import AnySession
from faststream_outbox._internal.log.deferral.blocked import PARKED, RETRY
from faststream_outbox._internal.log.deferral.parked import DeferredMessage
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.executor import BatchRun
from faststream_outbox._internal.log.message import OutboxMessage, checked
from faststream_outbox._internal.log.options import Start
from faststream_outbox._internal.log.sharing.slots import matches
from faststream_outbox._internal.log.verdict import put_off
from faststream_outbox._internal.memory.clock import NEVER, MemoryClock
from faststream_outbox._internal.outcomes.failure import Failure, Renderer, described
from faststream_outbox._internal.outcomes.outcome import Dead, FinalOutcome, Outcome, Release, Retry, resolved
from faststream_outbox._internal.sql.log_rows import ReadMessage
from faststream_outbox.errors import DuplicateMessage


class MemoryLog:
    """What was published to topics; `messages` shows what is committed of it."""

    def __init__(self, clock: MemoryClock | None = None) -> None:
        self.clock = clock or MemoryClock()
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


class UnleasedBatchRun(BatchRun):
    """The end of a delivery that nobody else could take over."""

    def __init__(self) -> None:
        """There is no batch and no reader."""

    async def begin_within(self, session: AsyncSession) -> None:
        """Nothing to hold."""
        await session.begin()

    async def settle_within(self, session: AnySession, deliveries: Sequence[Delivery]) -> None:
        """Nothing to write."""

    async def commit(self, session: AsyncSession) -> None:
        """Commit; no answer can be lost."""
        await session.commit()

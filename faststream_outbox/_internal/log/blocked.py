"""Keys that wait, and what an outcome means for the message of a key: over, to be tried again, or parked.

A failure blocks its key and nothing else: those behind it are deferred. Whether a key is blocked is known in memory
while its slot is held, because only the holder of a slot defers messages; it is read anew whenever slots change hands
or an operator has changed something. On the happy path this costs nothing. A transient error of the database puts off
without counting; of messages that one error ended together, nobody knows which is to blame. Does no I/O. Kept by each
`member`; asked by `executor`, `reader`, `settler` and the log in memory.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from faststream_outbox._internal.connections.cause import is_transient
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.slots import Span
from faststream_outbox._internal.outcomes.failure import Failure, described
from faststream_outbox._internal.outcomes.outcome import (
    Dead,
    Done,
    FinalOutcome,
    Outcome,
    Release,
    Retry,
    Settled,
    resolved,
)
from faststream_outbox._internal.sql.log_rows import BlockedKey

RETRY = "retry"
DEFERRED = "deferred"
PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Deferral:
    """A message to defer: where it is, why, and when it is due."""

    position: int
    tick: int
    slot: int
    key: str
    state: str
    attempts: int = 0
    delay: float = 0.0
    failure: Failure = field(default_factory=lambda: described(None))


@dataclass(slots=True)
class Waiting:
    """A blocked key: its slot, how many wait, and when its first is due; None is not before an operator says so."""

    slot: int
    count: int
    due_at: float | None


class Blocked:
    """The blocked keys of what a member holds. Times are the event loop's."""

    def __init__(self, *, hold: bool, most: int) -> None:
        self.hold = hold
        """Whether a parked message blocks its key."""
        self.most = most
        """How many may wait behind one message before its slot stops."""
        self.keys: dict[str, Waiting] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.keys

    def load(self, rows: Iterable[BlockedKey], now: float) -> None:
        """Take what the database knows of the slots held."""
        self.keys = {
            row.key: Waiting(row.slot, row.waiting, None if row.state == PARKED else now + max(0.0, row.due_in or 0.0))
            for row in rows
        }

    def put(self, deferral: Deferral, now: float) -> None:
        """A message of the key was deferred."""
        if deferral.state == PARKED and not self.hold:
            return
        due = None if deferral.state == PARKED else now + deferral.delay
        known = self.keys.get(deferral.key)
        if known is None:
            self.keys[deferral.key] = Waiting(deferral.slot, 1, due)
        else:
            known.count += 1

    def waiting(self, key: str) -> int:
        """How many wait under this key."""
        known = self.keys.get(key)
        return 0 if known is None else known.count

    def due(self, now: float) -> list[str]:
        """Keys whose first message may run."""
        return [key for key, waiting in self.keys.items() if waiting.due_at is not None and waiting.due_at <= now]

    def next_due(self) -> float | None:
        """When the next key falls due."""
        return min((waiting.due_at for waiting in self.keys.values() if waiting.due_at is not None), default=None)

    def halted(self) -> set[int]:
        """Slots that are stopped."""
        return {waiting.slot for waiting in self.keys.values() if waiting.count >= self.most}


def as_columns(deferrals: Sequence[Deferral]) -> dict[str, Any]:
    """Messages to defer, as parameters of `advance`."""
    return {
        "deferred_positions": [deferral.position for deferral in deferrals],
        "deferred_ticks": [deferral.tick for deferral in deferrals],
        "deferred_slots": [deferral.slot for deferral in deferrals],
        "deferred_keys": [deferral.key for deferral in deferrals],
        "deferred_states": [deferral.state for deferral in deferrals],
        "deferred_attempts": [deferral.attempts for deferral in deferrals],
        "deferred_delays": [deferral.delay for deferral in deferrals],
        "deferred_types": [deferral.failure.error_type for deferral in deferrals],
        "deferred_messages": [deferral.failure.error_message for deferral in deferrals],
        "deferred_tracebacks": [deferral.failure.traceback for deferral in deferrals],
    }


def as_changes(deferrals: Sequence[Deferral], done: Sequence[int]) -> dict[str, Any]:
    """Messages that were deferred before, as parameters of `settle_deferred`."""
    return {
        "done": list(done),
        "positions": [deferral.position for deferral in deferrals],
        "states": [deferral.state for deferral in deferrals],
        "attempts": [deferral.attempts for deferral in deferrals],
        "delays": [deferral.delay for deferral in deferrals],
        "types": [deferral.failure.error_type for deferral in deferrals],
        "messages": [deferral.failure.error_message for deferral in deferrals],
        "tracebacks": [deferral.failure.traceback for deferral in deferrals],
    }


def ranges_of(spans: Iterable[Span]) -> dict[str, Any]:
    """Spans as parameters of `blocked`."""
    held = list(spans)
    return {"los": [span.lo for span in held], "his": [span.hi for span in held]}


TRANSIENT_PAUSE = 1.0
"""Seconds until a message is tried again whose failure was the database's."""

MOST_ATTEMPTS = 2**31 - 1
"""What the table can count to."""


def put_off(outcome: Outcome) -> Outcome:
    """The outcome, where a transient error does not count and does not ask the strategy."""
    if isinstance(outcome, Retry) and is_transient(outcome.error):
        return Retry(TRANSIENT_PAUSE if outcome.delay is None else outcome.delay, outcome.error, counts=False)
    return outcome


def failed_together(outcomes: Sequence[Outcome]) -> bool:
    """Whether one error ended several messages of a batch, so that nobody knows which of them was to blame."""
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Done)]
    errors = [outcome.error for outcome in failed if isinstance(outcome, Retry | Dead)]
    if len(failed) < 2 or len(errors) < len(failed) or errors[0] is None:
        return False
    return all(error is errors[0] for error in errors) and not is_transient(errors[0])


def deferral_of(
    delivery: Delivery, outcome: Outcome, options: ReadOptions, describe: Callable[[BaseException | None], Failure]
) -> tuple[Deferral | None, FinalOutcome]:
    """Where a message waits after this outcome, None if it is done; and the outcome with nothing left open."""
    final = resolved(
        put_off(outcome),
        strategy=options.retry_strategy,
        on_undecided="retry",
        now=datetime.now(UTC),
        first_attempt_at=delivery.first_attempt_at,
        attempts_count=delivery.attempts + 1,
    )
    place = (delivery.position, delivery.tick, delivery.slot, delivery.uri)
    match final:
        case Retry(delay=delay, error=error, counts=counts):
            attempts = min(delivery.attempts + int(counts), MOST_ATTEMPTS)
            return Deferral(*place, RETRY, attempts, delay or 0.0, describe(error)), final
        case Dead(error=error):
            attempts = min(delivery.attempts + 1, MOST_ATTEMPTS)
            return Deferral(*place, PARKED, attempts, 0.0, describe(error)), final
        case Done() | Settled() | Release():
            return None, final

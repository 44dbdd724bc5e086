"""What a handler's outcome means for a message of a topic: over, to be tried again, or parked.

A transient error of the database puts off without counting. Of messages that one error ended together, nobody knows
which is to blame. Pure. Used by `executor`, by `transactional`, and by the log in memory.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from faststream_outbox._internal.log.deferral.blocked import PARKED, RETRY, Deferral
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.outcomes.failure import described
from faststream_outbox._internal.outcomes.outcome import Dead, Done, Outcome, Release, Retry, Settled, resolved

TRANSIENT_PAUSE = 1.0
"""Seconds until a message is tried again whose failure was the database's."""

MOST_ATTEMPTS = 2**31 - 1
"""What the table can count to."""

_TRANSIENT = ("08", "53", "40001", "40P01", "57P0", "25006")


def is_transient(error: BaseException | None) -> bool:
    """Whether the database said that trying again may help: connections, resources, conflicts, shutdowns."""
    seen = 0
    while error is not None and seen < 10:
        if getattr(error, "connection_invalidated", False):
            # SQLAlchemy's word for a connection that died under a statement.
            return True
        for holder in (error, getattr(error, "orig", None)):
            state = getattr(holder, "sqlstate", None) or getattr(holder, "pgcode", None)
            if isinstance(state, str) and state.startswith(_TRANSIENT):
                return True
        error, seen = error.__cause__, seen + 1
    return False


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


def deferral_of(delivery: Delivery, outcome: Outcome, reader: Reader) -> tuple[Deferral | None, Outcome]:
    """Where a message waits after this outcome, None if it is done; and the outcome with nothing left open."""
    final = resolved(
        put_off(outcome),
        strategy=reader.options.retry_strategy,
        on_undecided="retry",
        now=datetime.now(UTC),
        first_attempt_at=delivery.first_attempt_at,
        attempts_count=delivery.attempts + 1,
    )
    place = (delivery.position, delivery.tick, delivery.slot, delivery.uri)
    match final:
        case Retry(delay=delay, error=error, counts=counts):
            attempts = min(delivery.attempts + int(counts), MOST_ATTEMPTS)
            return Deferral(*place, RETRY, attempts, delay or 0.0, described(error, reader.client.renderer)), final
        case Dead(error=error):
            attempts = min(delivery.attempts + 1, MOST_ATTEMPTS)
            return Deferral(*place, PARKED, attempts, 0.0, described(error, reader.client.renderer)), final
        case Done() | Settled() | Release():
            return None, final

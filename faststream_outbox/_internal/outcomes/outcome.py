"""What can become of a claimed message: a closed set of types, and the rule that makes them final.

Handlers return an `Outcome`; `resolved` turns what leaves a choice open (a retry without a delay, no
decision at all) into one that can be written. Pure. Used by the engines.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, assert_never

from faststream_outbox._internal.outcomes.failure import ENDING
from faststream_outbox._internal.outcomes.retry import bounded_seconds, next_delay

OnUndecided = Literal["retry", "release", "done", "dead"]

REJECTED = "rejected"
RETRY_TERMINAL = "retry_terminal"
MAX_DELIVERIES = "max_deliveries"
CRASH_LOOP = "crash_loop"
NOT_READABLE = "not_readable"
UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Done:
    """Handled: delete it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `delay` seconds, or as the retry strategy says; `counts` as an attempt or not."""

    delay: float | None = None
    error: BaseException | None = None
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Dead:
    """Failed for good: a dead letter, or deleted where there is no table for those."""

    reason: str = REJECTED
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Give it back at once, for any worker; `counts` as a delivery if its handler had begun."""

    counts: bool = False


@dataclass(frozen=True, slots=True)
class Undecided:
    """The handler ended without saying; the worker's `on_undecided` decides, and keeps the error if there was one."""

    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """Already written, in the handler's own transaction."""


Outcome = Done | Retry | Dead | Release | Undecided | Settled
"""What a handler decided, or what its end means."""
FinalOutcome = Done | Retry | Dead | Release | Settled
"""An outcome that can be written."""

DONE = Done()
"""Handled: a queue deletes the message, a group moves past it."""
RELEASE = Release()
"""Not started: the message goes back, and no attempt is counted."""
STOPPED = Release(counts=True)
"""What becomes of a message whose handler was cancelled by a stop."""
SETTLED = Settled()
"""Finished by the handler in its own transaction: nothing is left to write."""


def resolved(
    outcome: Outcome,
    *,
    strategy: object,
    on_undecided: OnUndecided,
    now: datetime,
    first_attempt_at: datetime | None,
    attempts_count: int,
) -> FinalOutcome:
    """The outcome with nothing left open; `attempts_count` includes the attempt that just ended."""
    match outcome:
        case Done() | Dead() | Release() | Settled():
            return outcome
        case Retry(delay=given, error=error, counts=counts):
            try:
                delay = (
                    bounded_seconds(given, "The delay of a Retry")
                    if given is not None
                    else next_delay(
                        strategy,
                        now=now,
                        first_attempt_at=first_attempt_at or now,
                        last_attempt_at=now,
                        attempts_count=max(1, attempts_count - int(not counts)),
                        exception=error,
                    )
                )
            except ENDING:
                raise
            except BaseException as problem:  # noqa: BLE001 - kept with the dead letter
                problem.__context__ = problem.__context__ or error
                return Dead(RETRY_TERMINAL, problem)
            return Dead(RETRY_TERMINAL, error) if delay is None else Retry(delay, error, counts)
        case Undecided(error=error):
            decided = _DECIDED[on_undecided]
            return resolved(
                replace(decided, error=error) if isinstance(decided, Retry | Dead) else decided,
                strategy=strategy,
                on_undecided=on_undecided,
                now=now,
                first_attempt_at=first_attempt_at,
                attempts_count=attempts_count,
            )
        case _:
            assert_never(outcome)


_DECIDED: dict[OnUndecided, Outcome] = {
    "retry": Retry(),
    "release": Release(counts=True),
    "done": DONE,
    "dead": Dead(UNDECIDED),
}

"""What both engines do alike.

`closing` says how the end of a message is told: every outcome has its event, and a new one cannot be forgotten. Called
when the outcome is written, by the settlers of both engines and by the test broker. Knows neither engine.
"""

from typing import Any, assert_never

from faststream_outbox._internal import events
from faststream_outbox._internal.outcomes.outcome import Dead, Done, FinalOutcome, Release, Retry, Settled


def closing(
    outcome: FinalOutcome, seconds: float, *, kept: bool, was_started: bool, age: float | None
) -> tuple[type[events.MessageEvent], dict[str, Any]]:
    """The event that closes a message, and its fields beside those that name the message.

    seconds: how long its handler took.
    kept: whether one that has failed for good is kept.
    was_started: whether its handler had begun.
    age: how long ago it was published, if that is known.
    """
    match outcome:
        case Done() | Settled():
            return events.Handled, {"duration_seconds": seconds, "age_seconds": age}
        case Retry(delay=delay, error=error):
            return events.Retried, {"duration_seconds": seconds, "delay_seconds": delay or 0.0, "error": error}
        case Dead(reason=reason, error=error):
            told = {"duration_seconds": seconds, "reason": reason, "kept": kept, "error": error, "age_seconds": age}
            return events.Died, told
        case Release():
            return events.Released, {"was_started": was_started}
        case _:
            assert_never(outcome)

"""Which statement writes outcomes of one kind, and with which values. Pure. Used by `settler`."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from faststream_outbox._internal.outcomes.failure import Renderer, described, storable
from faststream_outbox._internal.outcomes.outcome import Dead, Done, FinalOutcome, Release, Retry, Settled
from faststream_outbox._internal.queue.claim import Claim

Ended = tuple[Claim, FinalOutcome]
"""A claim, and the outcome to be written."""


def kind_of(items: Sequence[Ended]) -> type[FinalOutcome]:
    """The kind of outcomes that are all of one kind."""
    _, outcome = items[0]
    return type(outcome)


def settling(
    items: Sequence[Ended], *, keeps_dead: bool, renderer: Renderer | None = None
) -> tuple[str, dict[str, Any]] | None:
    """The statement's name and values; None where there is nothing to write. All outcomes are of one kind."""
    _, outcome = items[0]
    values = _leases(items)
    match outcome:
        case Done():
            return "settle_done", values
        case Retry():
            values["delays"] = [item.delay for _, item in items if isinstance(item, Retry)]
            values["attempts"] = [int(item.counts) for _, item in items if isinstance(item, Retry)]
            return "settle_retry", values
        case Release():
            values["uncounted"] = [int(not item.counts) for _, item in items if isinstance(item, Release)]
            return "settle_release", values
        case Dead():
            return ("settle_dead", values | _verdicts(items, renderer)) if keeps_dead else ("settle_done", values)
        case Settled():
            return None
        case _:
            assert_never(outcome)


def setting_apart(item: Ended, error: BaseException) -> dict[str, Any]:
    """The values that set a message apart whose outcome was refused."""
    _, outcome = item
    # Not the outcome's own text: it may hold an error whose rendering raises.
    if isinstance(outcome, Dead):
        reason = f"{_said(outcome.reason)}; dead letter refused: {error!r}"
    else:
        reason = f"{type(outcome).__name__} refused: {error!r}"
    return _leases([item]) | {"reasons": [storable(reason, 1000)]}


def written_before(number: int, outcome: FinalOutcome, stays: Mapping[int, bool]) -> bool:
    """Whether an earlier try wrote it before its answer was lost; `stays` says which rows exist, and are held."""
    if isinstance(outcome, Retry | Release):
        return not stays.get(number)
    return number not in stays


def _said(reason: object) -> str:
    try:
        return str(reason)
    except Exception as problem:  # noqa: BLE001 - an object of the user's; storing a failure must not fail
        return f"{type(reason).__name__} ({type(problem).__name__} while rendering it)"


def _leases(items: Sequence[Ended]) -> dict[str, Any]:
    return {
        "ids": [claim.id for claim, _ in items],
        "tokens": [claim.acquired_token for claim, _ in items],
    }


def _verdicts(items: Sequence[Ended], renderer: Renderer | None) -> dict[str, list[Any]]:
    dead = [(claim, outcome) for claim, outcome in items if isinstance(outcome, Dead)]
    failures = [described(outcome.error, renderer) for _, outcome in dead]
    return {
        "attempts": [int(claim.was_started) for claim, _ in dead],
        "reasons": [storable(_said(outcome.reason), 64) for _, outcome in dead],
        "exceptions": [failure.exception for failure in failures],
        "error_types": [failure.error_type for failure in failures],
        "error_messages": [failure.error_message for failure in failures],
        "tracebacks": [failure.traceback for failure in failures],
    }

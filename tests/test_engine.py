"""Every outcome has the event that closes its message, with all of its fields."""

from dataclasses import fields
from typing import Any, get_args

from faststream_outbox import events
from faststream_outbox._internal.engine import closing
from faststream_outbox._internal.outcomes.outcome import (
    DONE,
    RELEASE,
    SETTLED,
    STOPPED,
    Dead,
    FinalOutcome,
    Retry,
)
from tests.cases import each

ERROR = ValueError("no such order")
HANDLED = {"duration_seconds": 2.0, "age_seconds": 7.0}
DIED = {"duration_seconds": 2.0, "reason": "rejected", "kept": True, "age_seconds": 7.0, "error": ERROR}
ENDS: list[tuple[FinalOutcome, dict[str, bool], type[events.MessageEvent], dict[str, Any]]] = [
    (DONE, {}, events.Handled, HANDLED),
    (SETTLED, {}, events.Handled, HANDLED),
    (Retry(3.0, ERROR), {}, events.Retried, {"duration_seconds": 2.0, "delay_seconds": 3.0, "error": ERROR}),
    (Retry(), {}, events.Retried, {"duration_seconds": 2.0, "delay_seconds": 0.0, "error": None}),
    (Dead("rejected", ERROR), {}, events.Died, DIED),
    (Dead("rejected", ERROR), {"kept": False}, events.Died, DIED | {"kept": False}),
    (RELEASE, {}, events.Released, {"was_started": True}),
    (RELEASE, {"was_started": False}, events.Released, {"was_started": False}),
    (STOPPED, {}, events.Released, {"was_started": True}),
]


@each(("outcome", "given", "kind", "told"), ENDS)
def test_an_outcome_is_told_as(
    outcome: FinalOutcome, given: dict[str, bool], kind: type[events.MessageEvent], told: dict[str, Any]
) -> None:
    assert closing(outcome, 2.0, **({"kept": True, "was_started": True} | given), age=7.0) == (kind, told)


@each("outcome", [DONE, SETTLED, Retry(), Dead(), RELEASE])
def test_nothing_is_missing_beside_what_names_the_message(outcome: FinalOutcome) -> None:
    kind, told = closing(outcome, 2.0, kept=False, was_started=False, age=None)
    assert {*told} == {field.name for field in fields(kind)} - {field.name for field in fields(events.MessageEvent)}


def test_every_outcome_is_told() -> None:
    assert {type(outcome) for outcome, *_ in ENDS} == {*get_args(FinalOutcome)}

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
ENDS: list[tuple[FinalOutcome, type[events.MessageEvent], dict[str, Any]]] = [
    (DONE, events.Handled, {"duration_seconds": 2.0, "age_seconds": 7.0}),
    (SETTLED, events.Handled, {"duration_seconds": 2.0, "age_seconds": 7.0}),
    (Retry(3.0, ERROR), events.Retried, {"duration_seconds": 2.0, "delay_seconds": 3.0, "error": ERROR}),
    (Retry(), events.Retried, {"duration_seconds": 2.0, "delay_seconds": 0.0, "error": None}),
    (
        Dead("rejected", ERROR),
        events.Died,
        {"duration_seconds": 2.0, "reason": "rejected", "kept": True, "age_seconds": 7.0, "error": ERROR},
    ),
    (RELEASE, events.Released, {"was_started": True}),
    (STOPPED, events.Released, {"was_started": True}),
]


@each(("outcome", "kind", "told"), ENDS)
def test_an_outcome_is_told_as(outcome: FinalOutcome, kind: type[events.MessageEvent], told: dict[str, Any]) -> None:
    assert closing(outcome, 2.0, kept=True, was_started=True, age=7.0) == (kind, told)


@each("outcome", [DONE, SETTLED, Retry(), Dead(), RELEASE])
def test_nothing_is_missing_beside_what_names_the_message(outcome: FinalOutcome) -> None:
    kind, told = closing(outcome, 2.0, kept=False, was_started=False, age=None)
    assert {*told} == {field.name for field in fields(kind)} - {field.name for field in fields(events.MessageEvent)}


def test_every_outcome_is_told() -> None:
    assert {type(outcome) for outcome, *_ in ENDS} == {*get_args(FinalOutcome)}


@each("kept", [True, False])
def test_it_is_said_whether_a_dead_one_is_kept(*, kept: bool) -> None:
    _, told = closing(Dead(), 2.0, kept=kept, was_started=True, age=None)
    assert told["kept"] is kept


@each("was_started", [True, False])
def test_it_is_said_whether_one_that_was_given_back_had_begun(*, was_started: bool) -> None:
    _, told = closing(RELEASE, 2.0, kept=True, was_started=was_started, age=None)
    assert told["was_started"] is was_started

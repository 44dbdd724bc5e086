"""The table of events is complete, and each of its rows is a frozen record with a meaning."""

import dataclasses
import inspect
from typing import Any, get_args

from faststream_outbox._internal.events import far_end, types
from faststream_outbox._internal.events.event_log import Noteworthy, Quiet, entry
from faststream_outbox._internal.events.recorder import Recorded
from faststream_outbox.events import Event
from tests.cases import each
from tests.events.samples import SAMPLES

WRITTEN = {
    kind
    for module in (types, far_end)
    for kind in vars(module).values()
    if inspect.isclass(kind) and kind.__module__ == module.__name__ and kind is not types.MessageEvent
}


def test_every_event_is_in_the_union() -> None:
    assert set(get_args(Event)) == WRITTEN


def test_former_names_are_the_same_classes() -> None:
    assert (types.ConnectionLost, types.ConnectionRestored) == (types.StatementFailed, types.StatementWorks)


def test_every_event_has_a_sample() -> None:
    assert {type(sample) for sample in SAMPLES} == WRITTEN


@each("kind", sorted(WRITTEN, key=lambda kind: kind.__name__))
def test_event_is_a_frozen_record_with_a_meaning(kind: Any) -> None:
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert not hasattr(next(sample for sample in SAMPLES if type(sample) is kind), "__dict__")
    # a dataclass without a docstring gets its signature for one
    assert kind.__doc__ is not None
    assert not kind.__doc__.startswith(f"{kind.__name__}(")


def test_recorder_knows_only_events_of_the_table() -> None:
    assert set(get_args(Recorded)) <= WRITTEN


def test_every_event_is_noteworthy_or_quiet() -> None:
    assert sorted(map(str, get_args(Noteworthy) + get_args(Quiet))) == sorted(map(str, WRITTEN))


@each("event", [one for one in SAMPLES if isinstance(one, Noteworthy)])
def test_journal_has_a_sentence_for_each_noteworthy_event(event: Any) -> None:
    level, words, _ = entry(event)
    assert level >= 20
    assert words.endswith((".", ")"))
    for name in ("queue", "id", "worker", "role", "hook", "name", "channel"):
        if hasattr(event, name) and not (name == "worker" and hasattr(event, "queue")):
            assert str(getattr(event, name)) in words

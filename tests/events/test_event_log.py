"""The event log: fields for machines, a trouble said with growing pauses, and one line when it is over."""

import json
import logging
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.events import event_log
from faststream_outbox._internal.events.event_log import Noteworthy, end_of, extra_of, trouble_of, write_event_log
from faststream_outbox.events import Events
from tests.cases import case, each
from tests.events.samples import SAMPLES

NOTEWORTHY = [one for one in SAMPLES if isinstance(one, Noteworthy)]


class Clock:
    """A time that the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(event_log, "monotonic", clock)
    return clock


@pytest.fixture
def emitter(caplog: pytest.LogCaptureFixture) -> Iterator[Events]:
    emitter = Events()
    caplog.set_level(logging.DEBUG, "mine")
    undo = write_event_log(emitter, logging.getLogger("mine"))
    yield emitter
    undo()


def test_every_record_has_the_fields_of_its_event() -> None:
    for event in NOTEWORTHY:
        with case(event):
            record = extra_of(event)
            assert record["outbox_event"] == type(event).__name__
            for field in fields(event):
                value = getattr(event, field.name)
                if isinstance(value, BaseException):
                    assert record["outbox_error_type"] == type(value).__name__
                elif value is not None:
                    shown = list(value) if isinstance(value, tuple) else value
                    assert record[f"outbox_{field.name}"] == shown
            json.dumps(record)


def test_fields_do_not_collide_with_those_of_a_record(emitter: Events, caplog: pytest.LogCaptureFixture) -> None:
    emitter.emit(events.LoopCrashed("outbox claimer", ValueError("no")))
    (record,) = caplog.records
    assert (record.name, record.__dict__["outbox_name"]) == ("mine", "outbox claimer")


def test_a_renderer_decides_what_fields_say_of_an_error(caplog: pytest.LogCaptureFixture) -> None:
    emitter = Events()
    write_event_log(emitter, logging.getLogger("mine"), lambda error: "[hidden]")
    emitter.emit(events.StatementFailed("claim", ValueError("4111-1111")))
    (record,) = caplog.records
    assert "4111-1111" not in str(record.__dict__)
    assert record.__dict__["outbox_error"] == "[hidden]"


def test_fields_hold_no_more_than_a_few_of_many(emitter: Events, caplog: pytest.LogCaptureFixture) -> None:
    emitter.emit(events.MessagesMissed("billing", "orders", tuple(range(10_000))))
    assert len(caplog.records[0].__dict__["outbox_positions"]) == event_log.MOST_ITEMS


LASTING: list[tuple[Any, Any]] = [
    (events.StatementFailed("claim", OSError("away")), events.StatementWorks("claim", 3600.0)),
    (events.ListenerLost("outbox", OSError("away")), events.ListenerReady("outbox")),
    (events.ListenerDeaf("outbox"), events.ListenerReady("outbox")),
    (events.RelayDown("to nats", "nats", OSError("away")), events.RelayUp("to nats", "nats", 3600.0)),
    (events.LoopCrashed("outbox claimer", OSError("away")), events.LoopRestored("outbox claimer", 3600.0)),
    (events.SchemaDiffers(("outbox: the table does not exist",)), events.SchemaFits()),
    (events.GapOld("outbox", 61.0, ()), events.GapClosed("outbox", 3600.0)),
]


@each(("trouble", "end"), LASTING)
def test_a_trouble_is_said_ever_more_seldom_and_its_end_once(
    trouble: Any, end: Any, clock: Clock, emitter: Events, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    began = clock.now
    said: list[float] = []
    for _ in range(3600):
        emitter.emit(trouble)
        if len(caplog.records) > len(said):
            said.append(clock.now - began)
        clock.now += 1.0
    assert said == [0, 30, 90, 210, 450, 930, 1890]
    caplog.clear()
    emitter.emit(end)
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    clock.now += 1.0
    emitter.emit(trouble)
    assert len(caplog.records) == 2


@each("event", [*(one for one in SAMPLES if not isinstance(one, Noteworthy)), events.ListenerReady("outbox")])
def test_what_goes_well_is_no_news(event: Any, emitter: Events, caplog: pytest.LogCaptureFixture) -> None:
    emitter.emit(event)
    assert caplog.records == []


def test_whatever_lasts_has_an_end() -> None:
    begun = {trouble[0] for event in NOTEWORTHY if (trouble := trouble_of(event)) is not None}
    ended = {end for event in NOTEWORTHY if (end := end_of(event)) is not None}
    assert begun == ended

"""What both recorders share: what is counted for each event, and each started message closed once."""

from typing import Any

import pytest

from faststream_outbox.events import Event, Events
from faststream_outbox.events import table as told
from faststream_outbox.events.recorder import record
from tests.events.samples import OF_MESSAGE, SAMPLES
from tests.metrics.readings import SERIES, Reading

STARTED = told.Started(**OF_MESSAGE, size_bytes=12)
CLOSING = [event for event in SAMPLES if isinstance(event, told.MessageEvent) and not isinstance(event, told.Started)]

COUNTED: dict[type[Any], dict[str, float]] = {
    told.Published: {},
    told.Claimed: {"fetch_batches": 1},
    told.Started: {},
    told.Handled: {},
    told.Retried: {},
    told.Died: {"terminal": 1, "dlq_written": 1},
    told.Released: {"released": 1, "dispatch_abandoned": 1},
    told.LeaseLost: {"lease_lost": 1},
    told.Abandoned: {"abandoned": 1, "dispatch_abandoned": 1},
    told.LeasesRenewed: {"leases_renewed": 4},
    told.OutcomeRefused: {"outcome_refused": 1, "dispatch_abandoned": 1},
    told.MessageSetApart: {},
    told.HookFailed: {"hook_failed": 1},
    told.DrainTimedOut: {"drain_timeout": 1},
    told.StillRunning: {},
    told.LoopCrashed: {"loop_crashes": 1},
    told.Ticked: {"sequenced": 100},
    told.GapOld: {"gap_age_seconds": 61},
    told.SequenceAdvanced: {},
    told.SlotsHeld: {"slots_held": 128},
    told.KeyHalted: {"keys_halted": 1},
    told.GroupExpired: {"groups_expired": 1},
    told.MessagesMissed: {"messages_missed": 3},
    told.ConnectionLost: {"connection_lost": 1},
    told.ConnectionRestored: {"connection_outage_seconds": 1},
    told.ListenerReady: {"listener_up": 1},
    told.ListenerLost: {"listener_lost": 1},
    told.ListenerDeaf: {"listener_lost": 1},
}


@pytest.fixture
def events(reading: Reading) -> Events:
    events = Events()
    reading.recorder.listen(events)
    return events


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_event_is_counted_in_these_series(events: Events, reading: Reading, event: Event) -> None:
    events.emit(event)
    assert reading.all_own() == COUNTED[type(event)]


def test_every_series_is_counted_for_some_event() -> None:
    assert {name for counted in COUNTED.values() for name in counted} == set(SERIES)


@pytest.mark.parametrize("event", CLOSING, ids=lambda event: type(event).__name__)
def test_closing_event_ends_what_was_started(events: Events, reading: Reading, event: Event) -> None:
    events.emit(STARTED)
    assert reading.running() == 1
    events.emit(event)
    assert reading.running() == 0


@pytest.mark.parametrize("event", CLOSING, ids=lambda event: type(event).__name__)
def test_closing_event_of_what_never_started_ends_nothing(events: Events, reading: Reading, event: Event) -> None:
    events.emit(event)
    assert (reading.running(), reading.timed()) == (0, 0)


def test_second_closing_event_ends_nothing(events: Events, reading: Reading) -> None:
    events.emit(STARTED)
    events.emit(told.Abandoned(**OF_MESSAGE))
    events.emit(told.Handled(**OF_MESSAGE, duration_seconds=0.5))
    assert (reading.running(), reading.timed()) == (0, 0)


def test_equal_messages_of_two_tables_are_told_apart_by_number(reading: Reading) -> None:
    one, other = Events(), Events()
    for events in (one, other):
        reading.recorder.listen(events)
        events.emit(STARTED)
    one.emit(told.Handled(**OF_MESSAGE, duration_seconds=0.5))
    assert reading.running() == 1
    other.emit(told.Handled(**OF_MESSAGE, duration_seconds=0.5))
    assert (reading.running(), reading.timed()) == (0, 2)


def test_calls_alone_count_what_they_tell(reading: Reading) -> None:
    events = Events()
    # Behind a plain function, which cannot listen.
    record(events, lambda name, tags: reading.recorder(name, tags))
    events.emit(STARTED)
    assert reading.running() == 1
    for event in SAMPLES:
        if not isinstance(event, told.Started):
            events.emit(event)
    assert reading.running() == 0
    assert reading.all_own() == {
        "fetch_batches": 1,
        "terminal": 1,
        "dlq_written": 1,
        "dispatch_abandoned": 3,
        "lease_lost": 1,
        "drain_timeout": 1,
    }


def test_calls_with_fewer_tags_are_counted(reading: Reading) -> None:
    reading.recorder("dispatched", {"queue": "orders", "subscriber": "billing"})
    assert reading.running() == 1
    reading.recorder("acked", {"queue": "orders", "subscriber": "billing", "duration_seconds": 0.5})
    reading.recorder("published", {"queue": "orders", "status": "success"})
    assert (reading.running(), reading.timed()) == (0, 1)


def test_unknown_call_is_not_counted(reading: Reading) -> None:
    reading.recorder("evaporated", {"queue": "orders"})
    assert reading.all_own() == {}


def test_both_ways_together_count_nothing_twice(reading: Reading) -> None:
    events = Events()
    record(events, reading.recorder)
    reading.recorder.listen(events)
    events.emit(told.Claimed("orders", "billing", 5))
    assert reading.all_own() == {"fetch_batches": 1}


def test_listening_twice_is_once(reading: Reading, events: Events) -> None:
    reading.recorder.listen(events)
    events.emit(told.Claimed("orders", "billing", 5))
    assert reading.all_own() == {"fetch_batches": 1}


def test_what_listen_returns_ends_it(reading: Reading) -> None:
    events = Events()
    forget = reading.recorder.listen(events)
    forget()
    events.emit(told.Claimed("orders", "billing", 5))
    assert reading.all_own() == {}
    reading.recorder("fetched", {"queue": "orders", "subscriber": "billing", "count": 5})
    assert reading.all_own() == {"fetch_batches": 1}


def test_listener_that_is_lost_is_down(reading: Reading, events: Events) -> None:
    events.emit(told.ListenerReady("outbox"))
    events.emit(told.ListenerLost("outbox", None))
    assert reading.own("listener_up", channel="outbox") == 0
    events.emit(told.ListenerReady("outbox"))
    assert reading.own("listener_up", channel="outbox") == 1

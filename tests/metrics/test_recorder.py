"""What both recorders share: what is counted for each event, and each started message closed once."""

from typing import Any

import pytest

from faststream_outbox._internal.events.recorder import record
from faststream_outbox._internal.metrics.sampler import MOST_VALUES
from faststream_outbox.events import (
    Abandoned,
    ChoreFailed,
    ChoreRestored,
    Claimed,
    DeadLettersPurged,
    DeliveryHeldUp,
    Died,
    DrainTimedOut,
    DuplicateSkipped,
    Event,
    Events,
    GapClosed,
    GapOld,
    GroupExpired,
    Handled,
    HookFailed,
    KeyHalted,
    LeasesRenewed,
    LeaseWasLost,
    ListenerDeaf,
    ListenerLost,
    ListenerReady,
    LogCleaned,
    LoopCrashed,
    LoopRestored,
    MessageEvent,
    MessageSetApart,
    MessagesMissed,
    OutcomeRefused,
    PartitionsMade,
    Published,
    ReceiptsCleaned,
    Received,
    RelayDown,
    Relayed,
    RelayUp,
    Released,
    ResponseReplayed,
    Retried,
    SchemaDiffers,
    SchemaFits,
    SequenceAdvanced,
    SlotsHeld,
    Started,
    StatementFailed,
    StatementWorks,
    StillRunning,
    Ticked,
)
from tests.events.samples import ERROR, OF_MESSAGE, SAMPLES
from tests.metrics.readings import SERIES, Reading

STARTED = Started(**OF_MESSAGE, size_bytes=12)
CLOSING = [event for event in SAMPLES if isinstance(event, MessageEvent) and not isinstance(event, Started)]

COUNTED: dict[type[Any], dict[str, float]] = {
    Published: {},
    Claimed: {"fetch_batches": 1},
    Started: {},
    Handled: {"deliveries_per_message": 1, "delivery_seconds": 1},
    Retried: {},
    Died: {"terminal": 1, "dlq_written": 1, "deliveries_per_message": 1, "delivery_seconds": 1},
    Released: {"released": 1, "dispatch_abandoned": 1},
    LeaseWasLost: {"lease_lost": 1},
    Abandoned: {"abandoned": 1, "dispatch_abandoned": 1},
    LeasesRenewed: {"leases_renewed": 4},
    OutcomeRefused: {"outcome_refused": 1, "dispatch_abandoned": 1},
    MessageSetApart: {"set_apart": 1},
    HookFailed: {"hook_failed": 1},
    DrainTimedOut: {"drain_timeout": 1},
    StillRunning: {"still_running": 1},
    LoopCrashed: {"loop_crashes": 1},
    LoopRestored: {},
    Ticked: {"sequenced": 100},
    GapOld: {"gap_age_seconds": 61},
    GapClosed: {},
    SequenceAdvanced: {"sequence_advanced": 1},
    SlotsHeld: {"slots_held": 128},
    KeyHalted: {"keys_halted": 1},
    GroupExpired: {"groups_expired": 1},
    MessagesMissed: {"messages_missed": 3},
    LogCleaned: {"messages_cleaned": 100, "partitions_dropped": 1},
    PartitionsMade: {"partitions_made": 1},
    DeadLettersPurged: {"dead_letters_purged": 5},
    Received: {"inbox_received": 1},
    DuplicateSkipped: {"inbox_duplicates": 1},
    DeliveryHeldUp: {"inbox_held_up": 1},
    ResponseReplayed: {"inbox_replayed": 1},
    ReceiptsCleaned: {"receipts_cleaned": 5},
    ChoreFailed: {"chores_failed": 1},
    ChoreRestored: {},
    Relayed: {"relayed": 500, "relay_refused": 1, "relay_in_flight": 3},
    RelayDown: {},
    RelayUp: {"relay_up": 1, "relay_outage_seconds": 1},
    SchemaDiffers: {},
    SchemaFits: {},
    StatementFailed: {"connection_lost": 1},
    StatementWorks: {"connection_outage_seconds": 1},
    ListenerReady: {"listener_up": 1},
    ListenerLost: {"listener_lost": 1},
    ListenerDeaf: {"listener_lost": 1},
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
    events.emit(Abandoned(**OF_MESSAGE))
    events.emit(Handled(**OF_MESSAGE, duration_seconds=0.5))
    assert (reading.running(), reading.timed()) == (0, 0)


def test_equal_messages_of_two_tables_are_told_apart_by_number(reading: Reading) -> None:
    one, other = Events(), Events()
    for events in (one, other):
        reading.recorder.listen(events)
        events.emit(STARTED)
    one.emit(Handled(**OF_MESSAGE, duration_seconds=0.5))
    assert reading.running() == 1
    other.emit(Handled(**OF_MESSAGE, duration_seconds=0.5))
    assert (reading.running(), reading.timed()) == (0, 2)


def test_calls_alone_count_what_they_tell(reading: Reading) -> None:
    events = Events()
    # Behind a plain function, which cannot listen.
    record(events, lambda name, tags: reading.recorder(name, tags))
    events.emit(STARTED)
    assert reading.running() == 1
    for event in SAMPLES:
        if not isinstance(event, Started):
            events.emit(event)
    assert reading.running() == 0
    assert reading.all_own() == {
        "fetch_batches": 1,
        "terminal": 1,
        "dlq_written": 1,
        "deliveries_per_message": 2,
        "delivery_seconds": 2,
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
    events.emit(Claimed("orders", "billing", 5))
    assert reading.all_own() == {"fetch_batches": 1}


def test_listening_twice_is_once(reading: Reading, events: Events) -> None:
    reading.recorder.listen(events)
    events.emit(Claimed("orders", "billing", 5))
    assert reading.all_own() == {"fetch_batches": 1}


def test_what_listen_returns_ends_it(reading: Reading) -> None:
    events = Events()
    forget = reading.recorder.listen(events)
    forget()
    events.emit(Claimed("orders", "billing", 5))
    assert reading.all_own() == {}
    reading.recorder("fetched", {"queue": "orders", "subscriber": "billing", "count": 5})
    assert reading.all_own() == {"fetch_batches": 1}


def test_listener_that_is_lost_is_down(reading: Reading, events: Events) -> None:
    events.emit(ListenerReady("outbox"))
    events.emit(ListenerLost("outbox", None))
    assert reading.own("listener_up", channel="outbox") == 0
    events.emit(ListenerReady("outbox"))
    assert reading.own("listener_up", channel="outbox") == 1


def test_gap_that_is_closed_has_no_age(reading: Reading, events: Events) -> None:
    events.emit(GapOld("outbox", 61.0, ()))
    events.emit(GapClosed("outbox", 90.0))
    assert reading.own("gap_age_seconds", log="outbox") == 0


def test_members_of_a_process_are_one_series_of_their_group(reading: Reading, events: Events) -> None:
    for member, slots in (("a", 128), ("b", 64), ("a", 100)):
        events.emit(SlotsHeld("billing", "orders", member, slots, 2))
    assert reading.own("slots_held", group="billing", uri="orders") == 164
    events.emit(SlotsHeld("billing", "orders", "a", 0, 1))
    assert reading.own("slots_held") == 64


def test_groups_of_one_topic_are_counted_apart(reading: Reading, events: Events) -> None:
    for group in ("billing", "billing", "mailing"):
        events.emit(Handled("orders", "handle", 17, 1, 0.1, group=group, age_seconds=0.2))
    assert reading.own("delivery_seconds", group="billing", outcome="done") == 2
    assert reading.own("delivery_seconds", group="mailing", outcome="done") == 1


def test_what_strangers_can_write_is_no_label_without_a_bound(reading: Reading, events: Events) -> None:
    for number in range(1000):
        message = {"queue": f"q{number}", "worker": f"w{number}", "id": number, "deliveries_count": 1}
        events.emit(DuplicateSkipped("billing", f"source {number}", "17"))
        events.emit(Died(**message, duration_seconds=0.1, reason=f"reason {number}", kept=True, error=ERROR))
        events.emit(Published(f"q{number}", 1, 1, 0.1, type(f"Error{number}", (Exception,), {})()))
    assert reading.most_series() <= MOST_VALUES + 1
    assert reading.own("inbox_duplicates", source="other") == 800
    assert reading.own("terminal", reason="other") == 800
    assert reading.own("terminal") == 1000

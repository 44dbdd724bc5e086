"""What both recorders share: what is counted for each event, and each started message closed once."""

from collections.abc import Callable
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.events.recorder import record
from faststream_outbox._internal.metrics.sampler import MOST_VALUES
from faststream_outbox.events import Event, Events
from tests.cases import each
from tests.events.samples import ERROR, OF_MESSAGE, SAMPLES
from tests.metrics.readings import SERIES, OpenTelemetryReading, PrometheusReading, Reading

CLAIMED = events.Claimed("orders", "billing", 5)
STARTED = events.Started(**OF_MESSAGE, size_bytes=12)
HANDLED = events.Handled(**OF_MESSAGE, duration_seconds=0.5)
CLOSING = [one for one in SAMPLES if isinstance(one, events.MessageEvent) and not isinstance(one, events.Started)]

COUNTED: dict[type[Any], dict[str, float]] = {
    events.Claimed: {"fetch_batches": 1},
    events.Handled: {"deliveries_per_message": 1, "delivery_seconds": 1},
    events.Died: {"terminal": 1, "dlq_written": 1, "deliveries_per_message": 1, "delivery_seconds": 1},
    events.Released: {"released": 1, "dispatch_abandoned": 1},
    events.LeaseWasLost: {"lease_lost": 1},
    events.Abandoned: {"abandoned": 1, "dispatch_abandoned": 1},
    events.LeasesRenewed: {"leases_renewed": 4},
    events.OutcomeRefused: {"outcome_refused": 1, "dispatch_abandoned": 1},
    events.MessageSetApart: {"set_apart": 1},
    events.HookFailed: {"hook_failed": 1},
    events.DrainTimedOut: {"drain_timeout": 1},
    events.StillRunning: {"still_running": 1},
    events.LoopCrashed: {"loop_crashes": 1},
    events.Ticked: {"sequenced": 100},
    events.GapOld: {"gap_age_seconds": 61},
    events.SequenceAdvanced: {"sequence_advanced": 1},
    events.SlotsHeld: {"slots_held": 128},
    events.KeyHalted: {"keys_halted": 1},
    events.GroupExpired: {"groups_expired": 1},
    events.MessagesMissed: {"messages_missed": 3},
    events.LogCleaned: {"messages_cleaned": 100, "partitions_dropped": 1},
    events.PartitionsMade: {"partitions_made": 1},
    events.DeadLettersPurged: {"dead_letters_purged": 5},
    events.Received: {"inbox_received": 1},
    events.DuplicateSkipped: {"inbox_duplicates": 1},
    events.DeliveryHeldUp: {"inbox_held_up": 1},
    events.ResponseReplayed: {"inbox_replayed": 1},
    events.ReceiptsCleaned: {"receipts_cleaned": 5},
    events.ChoreFailed: {"chores_failed": 1},
    events.Relayed: {"relayed": 500, "relay_refused": 1, "relay_in_flight": 3},
    events.RelayUp: {"relay_up": 1, "relay_outage_seconds": 1},
    events.StatementFailed: {"connection_lost": 1},
    events.StatementWorks: {"connection_outage_seconds": 1},
    events.ListenerReady: {"listener_up": 1},
    events.ListenerLost: {"listener_lost": 1},
    events.ListenerDeaf: {"listener_lost": 1},
}
"""All others are counted in none."""


@pytest.fixture(params=[PrometheusReading, OpenTelemetryReading], ids=["prometheus", "opentelemetry"])
def make(request: pytest.FixtureRequest) -> Callable[[], Reading]:
    kind: type[Reading] = request.param
    return kind


@pytest.fixture
def reading(make: Callable[[], Reading]) -> Reading:
    return make()


@pytest.fixture
def emitter(reading: Reading) -> Events:
    emitter = Events()
    reading.listen(emitter)
    return emitter


def after(make: Callable[[], Reading], *happened: Event) -> Reading:
    """What a recorder says that has heard nothing but these."""
    reading, emitter = make(), Events()
    reading.listen(emitter)
    for event in happened:
        emitter.emit(event)
    return reading


@each("event", SAMPLES)
def test_event_is_counted_in_these_series(make: Callable[[], Reading], event: Event) -> None:
    assert after(make, event).all_own() == COUNTED.get(type(event), {})


def test_every_series_is_counted_for_some_event() -> None:
    assert {name for counted in COUNTED.values() for name in counted} == set(SERIES)


@each("event", CLOSING)
def test_closing_event_ends_what_was_started(make: Callable[[], Reading], event: Event) -> None:
    assert after(make, STARTED).running() == 1
    assert after(make, STARTED, event).running() == 0


@each("happened", [*([event] for event in CLOSING), [STARTED, events.Abandoned(**OF_MESSAGE), HANDLED]])
def test_closing_event_of_what_does_not_run_ends_nothing(make: Callable[[], Reading], happened: list[Event]) -> None:
    reading = after(make, *happened)
    assert (reading.running(), reading.timed()) == (0, 0)


def test_equal_messages_of_two_tables_are_told_apart_by_number(reading: Reading) -> None:
    one, other = Events(), Events()
    for emitter in (one, other):
        reading.listen(emitter)
        emitter.emit(STARTED)
    one.emit(HANDLED)
    assert reading.running() == 1
    other.emit(HANDLED)
    assert (reading.running(), reading.timed()) == (0, 2)


def test_calls_alone_count_what_they_tell(reading: Reading) -> None:
    emitter = Events()
    # Behind a plain function, which cannot listen.
    record(emitter, lambda name, tags: reading.recorder(name, tags))
    emitter.emit(STARTED)
    assert reading.running() == 1
    for event in SAMPLES:
        if not isinstance(event, events.Started):
            emitter.emit(event)
    assert reading.running() == 0
    once = ("fetch_batches", "terminal", "dlq_written", "lease_lost", "drain_timeout")
    more = {"deliveries_per_message": 2, "delivery_seconds": 2, "dispatch_abandoned": 3}
    assert reading.all_own() == dict.fromkeys(once, 1) | more


def test_calls_with_fewer_tags_are_counted(reading: Reading) -> None:
    reading.recorder("dispatched", {"queue": "orders", "subscriber": "billing"})
    assert reading.running() == 1
    reading.recorder("acked", {"queue": "orders", "subscriber": "billing", "duration_seconds": 0.5})
    reading.recorder("published", {"queue": "orders", "status": "success"})
    assert (reading.running(), reading.timed()) == (0, 1)


def test_unknown_call_is_not_counted(reading: Reading) -> None:
    reading.recorder("evaporated", {"queue": "orders"})
    assert reading.all_own() == {}


def test_who_listens_twice_or_is_called_too_counts_nothing_twice(reading: Reading, emitter: Events) -> None:
    reading.listen(emitter)
    record(emitter, reading.recorder)
    emitter.emit(CLAIMED)
    assert reading.all_own() == {"fetch_batches": 1}


def test_what_listen_returns_ends_it(reading: Reading) -> None:
    emitter = Events()
    forget = reading.recorder.listen(emitter)
    forget()
    emitter.emit(CLAIMED)
    assert reading.all_own() == {}
    reading.recorder("fetched", {"queue": "orders", "subscriber": "billing", "count": 5})
    assert reading.all_own() == {"fetch_batches": 1}


def test_listener_that_is_lost_is_down(make: Callable[[], Reading]) -> None:
    ready, lost = events.ListenerReady("outbox"), events.ListenerLost("outbox", None)
    assert after(make, ready, lost).own("listener_up", channel="outbox") == 0
    assert after(make, ready, lost, ready).own("listener_up", channel="outbox") == 1


def test_gap_that_is_closed_has_no_age(make: Callable[[], Reading]) -> None:
    reading = after(make, events.GapOld("outbox", 61.0, ()), events.GapClosed("outbox", 90.0))
    assert reading.own("gap_age_seconds", log="outbox") == 0


def test_members_of_a_process_are_one_series_of_their_group(reading: Reading, emitter: Events) -> None:
    for member, slots in (("a", 128), ("b", 64), ("a", 100)):
        emitter.emit(events.SlotsHeld("billing", "orders", member, slots, 2))
    assert reading.own("slots_held", group="billing", uri="orders") == 164
    emitter.emit(events.SlotsHeld("billing", "orders", "a", 0, 1))
    assert reading.own("slots_held") == 64


def test_groups_of_one_topic_are_counted_apart(reading: Reading, emitter: Events) -> None:
    for group in ("billing", "billing", "mailing"):
        emitter.emit(events.Handled("orders", "handle", 17, 1, 0.1, group=group, age_seconds=0.2))
    assert reading.own("delivery_seconds", group="billing", outcome="done") == 2
    assert reading.own("delivery_seconds", group="mailing", outcome="done") == 1


def test_what_strangers_can_write_is_no_label_without_a_bound(reading: Reading, emitter: Events) -> None:
    for number in range(1000):
        message = {"queue": f"q{number}", "worker": f"w{number}", "id": number, "deliveries_count": 1}
        emitter.emit(events.DuplicateSkipped("billing", f"source {number}", "17"))
        emitter.emit(events.Died(**message, duration_seconds=0.1, reason=f"reason {number}", kept=True, error=ERROR))
        emitter.emit(events.Published(f"q{number}", 1, 1, 0.1, type(f"Error{number}", (Exception,), {})()))
    assert reading.most_series() <= MOST_VALUES + 1
    assert reading.own("inbox_duplicates", source="other") == 800
    assert reading.own("terminal", reason="other") == 800
    assert reading.own("terminal") == 1000

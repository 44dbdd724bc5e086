"""Names and attributes in OpenTelemetry: those of `faststream-outbox` 0.19, and the new ones."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from faststream_outbox import events
from faststream_outbox.metrics.opentelemetry import OpenTelemetryRecorder
from tests.events.samples import OF_MESSAGE, SAMPLES
from tests.metrics.meters import measured, points
from tests.metrics.readings import OpenTelemetryReading

DURATIONS = {"messaging.process.duration", "messaging.publish.duration"}
COUNTERS = {"messaging.process.messages", "messaging.publish.messages"}
NAMES = """
    fetch.batches lease_lost dlq_written drain_timeout in_process terminal dispatch_abandoned delivery
    deliveries_per_message released abandoned outcome_refused set_apart still_running sequence_advanced leases_renewed
    connection_lost connection_outage listener_up listener_lost loop_crashes hook_failed sequenced gap_age_seconds
    slots_held keys_halted groups_expired messages_missed messages_cleaned partitions_dropped partitions_made
    dead_letters_purged inbox_received inbox_duplicates inbox_held_up inbox_replayed receipts_cleaned chores_failed
    relayed relay_refused relay_in_flight relay_up relay_outage
"""
OUTBOX = {f"messaging.outbox.{name}" for name in NAMES.split()}


def names(reading: OpenTelemetryReading) -> set[str]:
    """The instruments that have measured something after one event of each type."""
    for event in SAMPLES:
        reading.recorder._hear(event)
    return {metric.name for metric in measured(reading.reader)}


def test_names() -> None:
    assert names(OpenTelemetryReading()) == DURATIONS | OUTBOX


def test_names_with_counters_of_messages() -> None:
    assert names(OpenTelemetryReading(include_messages_counters=True)) == DURATIONS | COUNTERS | OUTBOX


def test_without_the_instruments_of_the_middleware_only_those_of_the_outbox_are_left() -> None:
    assert names(OpenTelemetryReading(include_messages_counters=True, include_bus_metrics=False)) == OUTBOX


def test_failure_has_its_type() -> None:
    reading = OpenTelemetryReading()
    reading.recorder("dispatched", {"queue": "orders", "subscriber": "billing"})
    failed = {"queue": "orders", "subscriber": "billing", "duration_seconds": 0.5, "exception_type": "ValueError"}
    reading.recorder("nacked_retried", failed)
    (timed,) = points(reading.reader, "messaging.process.duration", **{"error.type": "ValueError"})
    assert (timed.count, timed.sum) == (1, 0.5)


def test_given_meter_is_used() -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[reader]).get_meter("of the application")
    OpenTelemetryRecorder(meter=meter)("drain_timeout", {"subscriber": "billing"})
    data = reader.get_metrics_data()
    scopes = [scope.scope.name for resource in data.resource_metrics for scope in resource.scope_metrics]
    assert scopes == ["of the application"]


def test_messages_are_counted_by_their_destination() -> None:
    reading = OpenTelemetryReading(include_messages_counters=True)
    for event in (events.Published("orders", 2, 30, 0.001), events.Started(**OF_MESSAGE, size_bytes=12)):
        reading.recorder._hear(event)
    reading.recorder._hear(events.Handled(**OF_MESSAGE, duration_seconds=0.5))
    (published,) = points(reading.reader, "messaging.publish.messages")
    attributes = {"messaging.system": "outbox", "messaging.destination.name": "orders"}
    assert (published.value, dict(published.attributes)) == (2, attributes)
    (processed,) = points(reading.reader, "messaging.process.messages")
    attributes = {"messaging.system": "outbox", "messaging.destination_publish.name": "orders"}
    assert (processed.value, dict(processed.attributes)) == (1, attributes)

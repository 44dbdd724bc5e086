"""Names and attributes in OpenTelemetry: those of `faststream-outbox` 0.19, and the new ones."""

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import events
from faststream_outbox.broker import OutboxBroker
from faststream_outbox.metrics.opentelemetry import OpenTelemetryRecorder
from tests.events.samples import SAMPLES
from tests.metrics.meters import points
from tests.metrics.readings import OpenTelemetryReading
from tests.queue.witness import Witness

DURATIONS = {"messaging.process.duration", "messaging.publish.duration"}
COUNTERS = {"messaging.process.messages", "messaging.publish.messages"}
OUTBOX = {
    "messaging.outbox.fetch.batches",
    "messaging.outbox.lease_lost",
    "messaging.outbox.dlq_written",
    "messaging.outbox.drain_timeout",
    "messaging.outbox.in_process",
    "messaging.outbox.terminal",
    "messaging.outbox.dispatch_abandoned",
    "messaging.outbox.delivery",
    "messaging.outbox.deliveries_per_message",
    "messaging.outbox.released",
    "messaging.outbox.abandoned",
    "messaging.outbox.outcome_refused",
    "messaging.outbox.set_apart",
    "messaging.outbox.still_running",
    "messaging.outbox.sequence_advanced",
    "messaging.outbox.leases_renewed",
    "messaging.outbox.connection_lost",
    "messaging.outbox.connection_outage",
    "messaging.outbox.listener_up",
    "messaging.outbox.listener_lost",
    "messaging.outbox.loop_crashes",
    "messaging.outbox.hook_failed",
    "messaging.outbox.sequenced",
    "messaging.outbox.gap_age_seconds",
    "messaging.outbox.slots_held",
    "messaging.outbox.keys_halted",
    "messaging.outbox.groups_expired",
    "messaging.outbox.messages_missed",
    "messaging.outbox.messages_cleaned",
    "messaging.outbox.partitions_dropped",
    "messaging.outbox.partitions_made",
    "messaging.outbox.dead_letters_purged",
    "messaging.outbox.inbox_received",
    "messaging.outbox.inbox_duplicates",
    "messaging.outbox.inbox_held_up",
    "messaging.outbox.inbox_replayed",
    "messaging.outbox.receipts_cleaned",
    "messaging.outbox.chores_failed",
    "messaging.outbox.relayed",
    "messaging.outbox.relay_refused",
    "messaging.outbox.relay_in_flight",
    "messaging.outbox.relay_up",
    "messaging.outbox.relay_outage",
}


def names(reading: OpenTelemetryReading) -> set[str]:
    """The instruments that have measured something after one event of each type."""
    for event in SAMPLES:
        reading.recorder._hear(event)
    data = reading.reader.get_metrics_data()
    assert data is not None
    scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
    return {metric.name for scope in scopes for metric in scope.metrics}


@pytest.fixture
def reading() -> OpenTelemetryReading:
    return OpenTelemetryReading()


def test_names(reading: OpenTelemetryReading) -> None:
    assert names(reading) == DURATIONS | OUTBOX


def test_names_with_counters_of_messages() -> None:
    assert names(OpenTelemetryReading(include_messages_counters=True)) == DURATIONS | COUNTERS | OUTBOX


def test_without_the_instruments_of_the_middleware_only_those_of_the_outbox_are_left() -> None:
    reading = OpenTelemetryReading(include_messages_counters=True, include_bus_metrics=False)
    assert names(reading) == OUTBOX


async def test_recorder_of_a_broker_counts_publishing_and_handling(engine: AsyncEngine, table: Table) -> None:
    reading = OpenTelemetryReading(include_messages_counters=True)
    broker = OutboxBroker(engine, outbox_table=table, metrics_recorder=reading.recorder)
    witness = Witness()
    broker.client.events.subscribe(witness)

    @broker.subscriber("orders")
    async def bill(body: str) -> None: ...

    await broker.start()
    try:
        async with AsyncSession(engine) as session, session.begin():
            await broker.publish_batch("chair", "table", queue="orders", session=session)
        await witness.wait(events.Handled, 2)
    finally:
        await broker.stop()
    (published,) = points(reading.reader, "messaging.publish.messages")
    assert (published.value, dict(published.attributes)) == (
        2,
        {"messaging.system": "outbox", "messaging.destination.name": "orders"},
    )
    (processed,) = points(reading.reader, "messaging.process.messages")
    assert (processed.value, dict(processed.attributes)) == (
        2,
        {"messaging.system": "outbox", "messaging.destination_publish.name": "orders"},
    )
    assert reading.running() == 0


def test_failure_has_its_type(reading: OpenTelemetryReading) -> None:
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
    assert data is not None
    assert [scope.scope.name for resource in data.resource_metrics for scope in resource.scope_metrics] == [
        "of the application"
    ]

"""Names and labels in Prometheus: those of `faststream-outbox` 0.19, and the new ones."""

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import events
from faststream_outbox.broker import OutboxBroker
from faststream_outbox.errors import InvalidOption
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from faststream_outbox.queue import DONE, Claim, Dead, Outcome, Retry
from tests.events.samples import SAMPLES
from tests.metrics.readings import PrometheusReading
from tests.queue.rig import Rig
from tests.queue.witness import Witness
from tests.test_prometheus import NINE

OF_019 = {
    "faststream_outbox_fetch_batches",
    "faststream_outbox_terminal",
    "faststream_outbox_lease_lost",
    "faststream_outbox_dlq_written",
    "faststream_outbox_drain_timeout",
}

NEW = {
    "faststream_outbox_dispatch_abandoned",
    "faststream_outbox_delivery_seconds",
    "faststream_outbox_deliveries_per_message",
    "faststream_outbox_released",
    "faststream_outbox_abandoned",
    "faststream_outbox_outcome_refused",
    "faststream_outbox_set_apart",
    "faststream_outbox_still_running",
    "faststream_outbox_sequence_advanced",
    "faststream_outbox_leases_renewed",
    "faststream_outbox_connection_lost",
    "faststream_outbox_connection_outage_seconds",
    "faststream_outbox_listener_up",
    "faststream_outbox_listener_lost",
    "faststream_outbox_loop_crashes",
    "faststream_outbox_hook_failed",
    "faststream_outbox_sequenced",
    "faststream_outbox_gap_age_seconds",
    "faststream_outbox_slots_held",
    "faststream_outbox_keys_halted",
    "faststream_outbox_groups_expired",
    "faststream_outbox_messages_missed",
    "faststream_outbox_messages_cleaned",
    "faststream_outbox_partitions_dropped",
    "faststream_outbox_partitions_made",
    "faststream_outbox_dead_letters_purged",
    "faststream_outbox_inbox_received",
    "faststream_outbox_inbox_duplicates",
    "faststream_outbox_inbox_held_up",
    "faststream_outbox_inbox_replayed",
    "faststream_outbox_receipts_cleaned",
    "faststream_outbox_chores_failed",
    "faststream_outbox_relayed",
    "faststream_outbox_relay_refused",
    "faststream_outbox_relay_in_flight",
    "faststream_outbox_relay_up",
    "faststream_outbox_relay_outage_seconds",
}


def names(registry: CollectorRegistry) -> set[str]:
    return {metric.name for metric in registry.collect()}


@pytest.fixture
def reading() -> PrometheusReading:
    return PrometheusReading()


def test_names() -> None:
    assert names(PrometheusReading().registry) == NINE | OF_019 | NEW


def test_without_the_series_of_the_middleware_only_those_of_the_outbox_are_left() -> None:
    reading = PrometheusReading(include_bus_metrics=False)
    assert names(reading.registry) == OF_019 | NEW
    for event in SAMPLES:
        reading.recorder._hear(event)
    assert names(reading.registry) == OF_019 | NEW


def test_prefix_and_application_are_as_given() -> None:
    reading = PrometheusReading(metrics_prefix="shop", app_name="checkout")
    reading.recorder("fetched", {"queue": "orders", "subscriber": "billing", "count": 3})
    labels = {"app_name": "checkout", "broker": "outbox", "handler": "billing", "group": "", "non_empty": "true"}
    assert reading.registry.get_sample_value("shop_outbox_fetch_batches_total", labels) == 1


def test_application_is_called_like_the_prefix_by_default() -> None:
    reading = PrometheusReading(metrics_prefix="shop")
    reading.recorder("drain_timeout", {"subscriber": "billing"})
    labels = {"app_name": "shop", "broker": "outbox", "handler": "billing", "group": ""}
    assert reading.registry.get_sample_value("shop_outbox_drain_timeout_total", labels) == 1


async def test_outcomes_are_counted_by_status(rig: Rig, reading: PrometheusReading) -> None:
    outcomes: dict[bytes, Outcome] = {b"a": DONE, b"bb": Retry(3600.0, ValueError("no")), b"ccc": Dead()}

    async def handle(claim: Claim) -> Outcome:
        return outcomes[claim.payload]

    await rig.work(handle)
    await rig.put("a", "bb", "ccc")
    await rig.witness.wait(events.Handled)
    await rig.witness.wait(events.Retried)
    await rig.witness.wait(events.Died)
    assert reading.bus("received_messages_total", handler="orders") == 3
    assert reading.bus("received_messages_size_bytes_sum", handler="orders") == 6
    for status in ("acked", "nacked", "error"):
        assert reading.bus("received_processed_messages_total", handler="orders", status=status) == 1
    assert reading.bus("received_processed_messages_exceptions_total", exception_type="ValueError") == 1


async def test_recorder_of_a_broker_counts_publishing_and_handling(
    engine: AsyncEngine, table: Table, reading: PrometheusReading
) -> None:
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
    assert reading.bus("published_messages_total", destination="orders", status="success") == 2
    assert reading.bus("published_messages_duration_seconds_count", destination="orders") == 1
    assert reading.bus("received_processed_messages_total", handler="orders", status="acked") == 2
    assert reading.running() == 0


def test_failed_publishing_is_counted(reading: PrometheusReading) -> None:
    reading.recorder._hear(events.Published("orders", 2, 30, 0.001, ValueError("no")))
    assert reading.bus("published_messages_total", destination="orders", status="error") == 2
    assert reading.bus("published_messages_exceptions_total", exception_type="ValueError") == 1


def test_custom_labels_may_look_at_the_tags() -> None:
    reading = PrometheusReading(custom_labels={"zone": "eu", "queue_": lambda tags: tags.get("queue", "")})
    for event in SAMPLES:
        reading.recorder._hear(event)
    assert reading.own("terminal", zone="eu", queue_="orders") == 1
    assert reading.own("leases_renewed", zone="eu", queue_="") == 4
    assert reading.bus("received_messages_total", zone="eu", queue_="orders") == 1


def test_recorders_of_one_registry_share_the_series(reading: PrometheusReading) -> None:
    other = PrometheusRecorder(registry=reading.registry, app_name="other")
    for recorder in (reading.recorder, other):
        recorder("drain_timeout", {"subscriber": "billing"})
    assert reading.own("drain_timeout", app_name="faststream") == 1
    assert reading.own("drain_timeout", app_name="other") == 1


def test_recorders_of_one_registry_must_agree_on_labels(reading: PrometheusReading) -> None:
    with pytest.raises(InvalidOption, match="custom_labels"):
        PrometheusRecorder(registry=reading.registry, custom_labels={"zone": "eu"})


def test_sizes_are_sorted_into_the_buckets_given() -> None:
    reading = PrometheusReading(received_messages_size_buckets=[10, 20])
    reading.recorder("dispatched", {"queue": "orders", "subscriber": "billing", "size_bytes": 15})
    sizes = {le: reading.bus("received_messages_size_bytes_bucket", le=le) for le in ("10.0", "20.0", "+Inf")}
    assert sizes == {"10.0": 0, "20.0": 1, "+Inf": 1}

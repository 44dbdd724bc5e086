"""Names and labels in Prometheus: those of `faststream-outbox` 0.19, and the new ones."""

import pytest

from faststream_outbox import events
from faststream_outbox.errors import InvalidOption
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from faststream_outbox.queue import DONE, Claim, Dead, Outcome, Retry
from tests.events.samples import SAMPLES
from tests.metrics.readings import PrometheusReading
from tests.queue.rig import Rig
from tests.test_prometheus import NINE

OF_019 = "fetch_batches terminal lease_lost dlq_written drain_timeout"
NEW = """
    dispatch_abandoned delivery_seconds deliveries_per_message released abandoned outcome_refused set_apart
    still_running sequence_advanced leases_renewed connection_lost connection_outage_seconds listener_up listener_lost
    loop_crashes hook_failed sequenced gap_age_seconds slots_held keys_halted groups_expired messages_missed
    messages_cleaned partitions_dropped partitions_made dead_letters_purged inbox_received inbox_duplicates
    inbox_held_up inbox_replayed receipts_cleaned chores_failed relayed relay_refused relay_in_flight relay_up
    relay_outage_seconds
"""
OUTBOX = {f"faststream_outbox_{name}" for name in (OF_019 + NEW).split()}


def names(reading: PrometheusReading) -> set[str]:
    return {metric.name for metric in reading.registry.collect()}


@pytest.fixture
def reading() -> PrometheusReading:
    return PrometheusReading()


def test_names(reading: PrometheusReading) -> None:
    assert names(reading) == NINE | OUTBOX


def test_without_the_series_of_the_middleware_only_those_of_the_outbox_are_left() -> None:
    reading = PrometheusReading(include_bus_metrics=False)
    assert names(reading) == OUTBOX
    for event in SAMPLES:
        reading.recorder._hear(event)
    assert names(reading) == OUTBOX


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
    for kind in (events.Handled, events.Retried, events.Died):
        await rig.witness.wait(kind)
    assert reading.bus("received_messages_total", handler="orders") == 3
    assert reading.bus("received_messages_size_bytes_sum", handler="orders") == 6
    for status in ("acked", "nacked", "error"):
        assert reading.bus("received_processed_messages_total", handler="orders", status=status) == 1
    assert reading.bus("received_processed_messages_exceptions_total", exception_type="ValueError") == 1


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

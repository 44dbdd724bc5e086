"""A recorder and FastStream's middleware on one broker count every message once, under one name."""

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker
from faststream_outbox.metrics.opentelemetry import OpenTelemetryRecorder
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from faststream_outbox.opentelemetry import OutboxTelemetryMiddleware
from faststream_outbox.prometheus import OutboxPrometheusMiddleware
from tests.metrics.meters import points
from tests.waiting import eventually

COUNTED = {
    "faststream_received_messages_total",
    "faststream_received_processed_messages_total",
    "faststream_published_messages_total",
    "faststream_published_messages_duration_seconds_count",
}


async def _run(
    engine: AsyncEngine, table: Table, recorder: object, *given: object, later: tuple[object, ...] = ()
) -> None:
    """A broker with a recorder and middlewares publishes three messages and handles them."""
    options: dict[str, Any] = {"metrics_recorder": recorder, "middlewares": given}
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None, **options)
    for middleware in later:
        broker.add_middleware(middleware)

    @broker.subscriber("orders")
    async def handle(body: int) -> None: ...

    await broker.start()
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish(1, "orders", session=session)
        await broker.publish_batch(2, 3, queue="orders", session=session)

    async def is_empty() -> bool:
        async with engine.connect() as connection:
            return (await connection.execute(table.select())).all() == []

    await eventually(is_empty)
    await broker.stop()


@pytest.mark.parametrize("way", ["recorder", "middleware", "both", "both, added later"])
async def test_prometheus(engine: AsyncEngine, table: Table, way: str) -> None:
    registry = CollectorRegistry()
    recorder = None if way == "middleware" else PrometheusRecorder(registry=registry)
    middlewares = () if way == "recorder" else (OutboxPrometheusMiddleware(registry=registry),)
    given, later = ((), middlewares) if way == "both, added later" else (middlewares, ())
    await _run(engine, table, recorder, *given, later=later)
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    counted = {
        (one.name, one.labels.get("handler") or one.labels.get("destination"), one.labels.get("status")): one.value
        for one in samples
        if one.name in COUNTED and one.value
    }
    assert counted == {
        ("faststream_received_messages_total", "orders", None): 3,
        ("faststream_received_processed_messages_total", "orders", "acked"): 3,
        ("faststream_published_messages_total", "orders", "success"): 3,
        ("faststream_published_messages_duration_seconds_count", "orders", None): 2,
    }
    own = [one for one in samples if one.name == "faststream_outbox_fetch_batches_total"]
    assert {one.labels["handler"] for one in own} == (set() if way == "middleware" else {"Handle"})


@pytest.mark.parametrize("way", ["recorder", "middleware", "both"])
async def test_opentelemetry(engine: AsyncEngine, table: Table, way: str) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    recorder = None if way == "middleware" else OpenTelemetryRecorder(meter_provider=provider)
    await _run(
        engine, table, recorder, *([] if way == "recorder" else [OutboxTelemetryMiddleware(meter_provider=provider)])
    )
    assert sum(point.count for point in points(reader, "messaging.process.duration")) == 3
    assert sum(point.count for point in points(reader, "messaging.publish.duration")) == 2


async def test_recorder_counts_for_a_broker_without_the_middleware(engine: AsyncEngine, table: Table) -> None:
    registry = CollectorRegistry()
    recorder = PrometheusRecorder(registry=registry)
    await _run(engine, table, recorder, OutboxPrometheusMiddleware(registry=registry))
    await _run(engine, table, recorder)
    labels = {"app_name": "faststream", "broker": "outbox", "handler": "orders"}
    assert registry.get_sample_value("faststream_received_messages_total", labels) == 6

"""Topics in the series of Prometheus, in traces, and in what a `metrics_recorder` hears."""

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from faststream_outbox import ConstantRetry
from faststream_outbox._internal.events.types import Handled
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from faststream_outbox.opentelemetry import OutboxTelemetryMiddleware
from faststream_outbox.prometheus import OutboxPrometheusMiddleware
from tests.broker.topics.stage import Stage
from tests.metrics.meters import points
from tests.waiting import eventually

LABELS = {"app_name": "shop", "broker": "outbox"}


@pytest.fixture
def registry(stage: Stage) -> CollectorRegistry:
    """Where the middleware of the stage's broker counts."""
    registry = CollectorRegistry()
    stage.replace(middlewares=[OutboxPrometheusMiddleware(registry=registry, app_name="shop")])
    return registry


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"faststream_{name}", LABELS | labels)


async def test_message_that_goes_well_is_counted(stage: Stage, registry: CollectorRegistry) -> None:
    stage.reads(notes=lambda *_: _value(registry, "received_messages_in_process", handler="orders"))
    await stage.play("chair")
    await stage.witness.wait(Handled)
    assert stage.seen == [1]
    assert _value(registry, "received_messages_in_process", handler="orders") == 0
    assert _value(registry, "received_messages_total", handler="orders") == 1
    assert _value(registry, "received_messages_size_bytes_sum", handler="orders") == len("chair")
    assert _value(registry, "received_processed_messages_total", handler="orders", status="acked") == 1
    assert _value(registry, "published_messages_total", destination="orders", status="success") == 1


async def test_batch_counts_as_many_messages_as_it_holds(stage: Stage, registry: CollectorRegistry) -> None:
    stage.reads(batch=True)
    await stage.publish("chair", "table", "lamp", keys=["a", "b", "a"])
    await stage.broker.start()
    await stage.witness.wait(Handled, 3)
    assert _value(registry, "received_messages_total", handler="orders") == 3
    assert _value(registry, "received_processed_messages_total", handler="orders", status="acked") == 3
    assert _value(registry, "published_messages_total", destination="orders", status="success") == 3


class Spans(InMemorySpanExporter):
    """Ended spans by name."""

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.get_finished_spans() if span.name == name]


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def spans(stage: Stage, reader: InMemoryMetricReader) -> Spans:
    """Where the middleware of the stage's broker tells of spans."""
    spans = Spans()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider(metric_readers=[reader])
    middleware = OutboxTelemetryMiddleware(
        tracer_provider=tracers, meter_provider=meters, include_messages_counters=True
    )
    stage.replace(middlewares=[middleware])
    return spans


def _ids(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


async def test_each_attempt_continues_the_trace_of_the_publisher(stage: Stage, spans: Spans) -> None:
    failures = [ValueError("not yet")]

    @stage.broker.subscriber(topic="orders", group="billing", retry_strategy=ConstantRetry(delay_seconds=0.02))
    async def handle(body: str) -> None:
        if failures:
            raise failures.pop()

    await stage.broker.start()
    await stage.send("chair")
    await eventually(lambda: len(spans.named("orders process")) == 2)
    (create,) = spans.named("orders create")
    for process in spans.named("orders process"):
        assert (process.parent.trace_id, process.parent.span_id) == _ids(create)
        assert (process.attributes or {})["messaging.destination_publish.name"] == "orders"
    assert [span.status.is_ok for span in spans.named("orders process")] == [False, True]


async def test_batch_is_linked_to_each_of_its_messages(
    stage: Stage, spans: Spans, reader: InMemoryMetricReader
) -> None:
    stage.reads(batch=True)
    for body in ("chair", "table"):
        await stage.send(body)
    origins = {_ids(span) for span in spans.named("orders create")}
    await stage.broker.start()
    await eventually(lambda: spans.named("orders process"))
    (process,) = spans.named("orders process")
    (batch,) = [span for span in spans.named("orders create") if _ids(span) not in origins]
    assert {(link.context.trace_id, link.context.span_id) for link in batch.links} == origins
    assert (process.attributes or {})["messaging.batch.message_count"] == 2
    assert [point.value for point in points(reader, "messaging.process.messages")] == [2]


class Heard(list[tuple[str, Mapping[str, Any]]]):
    """A recorder that keeps what it hears."""

    def __call__(self, event: str, tags: Mapping[str, Any]) -> None:
        self.append((event, {**tags}))

    def named(self, name: str) -> list[Mapping[str, Any]]:
        return [tags for event, tags in self if event == name]


@pytest.fixture
def heard(stage: Stage) -> Heard:
    heard = Heard()
    stage.replace(metrics_recorder=heard)
    return heard


async def test_recorder_hears_of_a_message_from_publish_to_ack(stage: Stage, heard: Heard) -> None:
    stage.reads()
    (position, _) = await stage.play("chair", "table", keys=["a", "b"])
    await eventually(lambda: len(heard.named("acked")) == 2)
    (published,) = heard.named("published")
    assert (published["queue"], published["count"], published["size_bytes"]) == ("orders", 2, 10)
    assert published["status"] == "success"
    dispatched, acked = heard.named("dispatched")[0], heard.named("acked")[0]
    assert (dispatched["queue"], dispatched["row_id"], dispatched["size_bytes"]) == ("orders", position, 5)
    assert (acked["queue"], acked["row_id"], acked["deliveries_count"]) == ("orders", position, 1)


async def test_recorder_hears_of_failures(stage: Stage, heard: Heard) -> None:
    stage.reads("chair", retry_strategy=ConstantRetry(delay_seconds=0.02, max_attempts=2))
    await stage.play("chair")
    await eventually(lambda: heard.named("nacked_terminal"))
    (retried,) = heard.named("nacked_retried")
    assert (retried["exception_type"], retried["next_delay_seconds"]) == ("ValueError", 0.02)
    (died,) = heard.named("nacked_terminal")
    assert (died["reason"], died["deliveries_count"]) == ("retry_terminal", 2)


async def test_groups_whose_handlers_have_the_same_name_are_counted_apart(stage: Stage) -> None:
    """Both have started the same message at the same time: two run, and none of them is forgotten."""
    registry = CollectorRegistry()
    broker = stage.replace(metrics_recorder=PrometheusRecorder(registry=registry))

    def register(group: str) -> None:
        @broker.subscriber(topic="orders", group=group)
        async def handle(body: str) -> None:
            stage.seen.append(group)
            await eventually(lambda: len(stage.seen) == 2)

    register("billing")
    register("mail")
    await stage.play("chair")
    await stage.witness.wait(Handled, 2)
    running = [
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name.endswith("messages_in_process")
    ]
    assert sum(running) == 0

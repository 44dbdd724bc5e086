"""Traces through the table: a handler's span belongs to the trace of whoever published."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer
from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal.events.types import Handled, Retried
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from faststream_outbox.broker import OutboxBroker
from faststream_outbox.opentelemetry import OutboxTelemetryMiddleware, OutboxTelemetrySettingsProvider
from tests.metrics.meters import points
from tests.queue.witness import Witness
from tests.waiting import eventually


class Spans(InMemorySpanExporter):
    """Ended spans by name."""

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.get_finished_spans() if span.name == name]

    async def one(self, name: str) -> ReadableSpan:
        """The only span of this name, once it has ended."""
        await eventually(lambda: self.named(name), message=f"a span {name!r}")
        (span,) = self.named(name)
        return span


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def tracer_provider(spans: Spans) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider


@pytest.fixture
def tracer(tracer_provider: TracerProvider) -> Tracer:
    return tracer_provider.get_tracer("test")


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
async def broker(
    engine: AsyncEngine, table: Table, tracer_provider: TracerProvider, reader: InMemoryMetricReader
) -> AsyncIterator[OutboxBroker]:
    middleware = OutboxTelemetryMiddleware(
        tracer_provider=tracer_provider,
        meter_provider=MeterProvider(metric_readers=[reader]),
        include_messages_counters=True,
    )
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, middlewares=[middleware])
    yield broker
    await broker.stop()


@pytest.fixture
def witness(broker: OutboxBroker) -> Witness:
    witness = Witness()
    broker.client.events.subscribe(witness)
    return witness


async def publish(broker: OutboxBroker, engine: AsyncEngine, body: str, queue: str = "orders") -> None:
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish(body, queue, session=session)


def ids(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


async def test_trace_context_is_in_the_headers_of_the_row(
    broker: OutboxBroker, engine: AsyncEngine, table: Table, spans: Spans
) -> None:
    await publish(broker, engine, "chair")
    async with engine.connect() as connection:
        headers: dict[str, Any] | None = await connection.scalar(select(table.c.headers))
    trace_id, span_id = ids(await spans.one("orders create"))
    assert headers is not None
    assert headers["traceparent"].startswith(f"00-{trace_id:032x}-{span_id:016x}-")


async def test_headers_of_the_caller_are_left_alone(broker: OutboxBroker, engine: AsyncEngine) -> None:
    headers = {"tenant": "acme"}
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish("chair", "orders", session=session, headers=headers)
        await broker.publish_batch("chair", "table", queue="orders", session=session, headers=headers)
    assert headers == {"tenant": "acme"}


async def test_handler_continues_the_trace_of_the_publisher(
    broker: OutboxBroker, engine: AsyncEngine, witness: Witness, spans: Spans, tracer: Tracer
) -> None:
    @broker.subscriber("orders")
    async def handle(body: str) -> None: ...

    await broker.start()
    with tracer.start_as_current_span("request") as request:
        await publish(broker, engine, "chair")
    await witness.wait(Handled)
    process, create = await spans.one("orders process"), await spans.one("orders create")
    assert parent(process) == ids(create)
    assert parent(create) == (request.get_span_context().trace_id, request.get_span_context().span_id)


async def test_message_of_a_handler_continues_its_trace(
    broker: OutboxBroker, engine: AsyncEngine, witness: Witness, spans: Spans
) -> None:
    @broker.subscriber("orders", transactional=True)
    async def handle(body: str, publisher: BrokerOfHandler) -> None:
        await publisher.publish(body, "letters")

    @broker.subscriber("letters")
    async def write(body: str) -> None: ...

    await broker.start()
    await publish(broker, engine, "chair")
    await witness.wait(Handled, queue="letters")
    first, second = await spans.one("orders process"), await spans.one("letters process")
    assert ids(second)[0] == ids(first)[0]


async def test_each_attempt_has_a_span_in_the_same_trace(
    broker: OutboxBroker, engine: AsyncEngine, witness: Witness, spans: Spans
) -> None:
    failures = [ValueError("not yet")]

    @broker.subscriber("orders", retry_strategy=ConstantRetry(delay_seconds=0.01))
    async def handle(body: str) -> None:
        if failures:
            raise failures.pop()

    await broker.start()
    await publish(broker, engine, "chair")
    await witness.wait(Retried)
    await witness.wait(Handled)
    await eventually(lambda: len(spans.named("orders process")) == 2)
    create = await spans.one("orders create")
    assert [parent(span) for span in spans.named("orders process")] == [ids(create)] * 2
    assert [span.status.is_ok for span in spans.named("orders process")] == [False, True]


async def test_span_says_what_was_handled(
    broker: OutboxBroker, engine: AsyncEngine, witness: Witness, spans: Spans
) -> None:
    messages: list[Any] = []

    @broker.subscriber("orders")
    async def handle(body: str) -> None:
        messages.append(broker.context.get_local("message"))

    await broker.start()
    await publish(broker, engine, "chair")
    await witness.wait(Handled)
    (message,) = messages
    assert dict((await spans.one("orders process")).attributes or {}) == {
        "messaging.system": "outbox",
        "messaging.message.id": message.message_id,
        "messaging.message.conversation_id": message.correlation_id,
        "messaging.message.payload_size_bytes": 5,
        "messaging.destination_publish.name": "orders",
        "messaging.operation": "process",
    }


async def test_batch_is_linked_to_each_of_its_messages(
    broker: OutboxBroker, engine: AsyncEngine, witness: Witness, spans: Spans
) -> None:
    @broker.subscriber("orders", batch=True, batch_size=3, batch_wait=5.0)
    async def handle(bodies: list[str]) -> None: ...

    for body in ("chair", "table", "lamp"):
        await publish(broker, engine, body)
    origins = {ids(span) for span in spans.named("orders create")}
    assert len(origins) == 3
    await broker.start()
    await witness.wait(Handled, 3)
    process = await spans.one("orders process")
    (batch,) = [span for span in spans.named("orders create") if ids(span) not in origins]
    assert {(link.context.trace_id, link.context.span_id) for link in batch.links} == origins
    assert parent(process) == ids(batch)
    assert (process.attributes or {})["messaging.batch.message_count"] == 3


async def test_messages_published_together_are_linked_to_that(
    broker: OutboxBroker, engine: AsyncEngine, witness: Witness, spans: Spans
) -> None:
    @broker.subscriber("orders")
    async def handle(body: str) -> None: ...

    async with AsyncSession(engine) as session, session.begin():
        await broker.publish_batch("chair", "table", queue="orders", session=session)
    (origin,) = spans.named("orders create")
    await broker.start()
    await witness.wait(Handled, 2)
    await eventually(lambda: len(spans.named("orders process")) == 2)
    linked = [span for span in spans.named("orders create") if span is not origin]
    assert [[link.context.span_id for link in span.links] for span in linked] == [[ids(origin)[1]]] * 2


async def test_messages_are_counted_and_timed(
    broker: OutboxBroker, engine: AsyncEngine, witness: Witness, reader: InMemoryMetricReader
) -> None:
    @broker.subscriber("orders", batch=True, batch_size=2, batch_wait=5.0)
    async def handle(bodies: list[str]) -> None: ...

    await broker.start()
    async with AsyncSession(engine) as session, session.begin():
        await broker.publish_batch("chair", "table", queue="orders", session=session)
    await witness.wait(Handled, 2)
    assert [point.value for point in points(reader, "messaging.publish.messages")] == [2]
    assert [point.value for point in points(reader, "messaging.process.messages")] == [2]
    assert [point.count for point in points(reader, "messaging.process.duration")] == [1]


def test_all_messages_share_one_provider(tracer_provider: TracerProvider) -> None:
    middleware = OutboxTelemetryMiddleware(tracer_provider=tracer_provider)
    provider = middleware._settings_provider_factory(None)
    assert isinstance(provider, OutboxTelemetrySettingsProvider)
    assert provider.messaging_system == "outbox"
    assert middleware._settings_provider_factory(object()) is provider

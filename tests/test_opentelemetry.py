"""Traces through the table: a handler's span belongs to the trace of whoever published."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.events.types import Handled
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from faststream_outbox.opentelemetry import OutboxTelemetryMiddleware, OutboxTelemetrySettingsProvider
from tests.metrics.meters import points
from tests.shop import Shop, open_shop
from tests.waiting import eventually


class Spans(InMemorySpanExporter):
    """Ended spans by name."""

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.get_finished_spans() if span.name == name]

    async def these(self, name: str, count: int) -> list[ReadableSpan]:
        """As many spans of this name as there are to be, once they have ended."""
        await eventually(lambda: len(self.named(name)) >= count, message=f"{count} spans {name!r}")
        found = self.named(name)
        assert len(found) == count
        return found

    async def one(self, name: str) -> ReadableSpan:
        """The only span of this name, once it has ended."""
        (span,) = await self.these(name, 1)
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
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
async def shop(
    engine: AsyncEngine, table: Table, tracer_provider: TracerProvider, reader: InMemoryMetricReader
) -> AsyncIterator[Shop]:
    middleware = OutboxTelemetryMiddleware(
        tracer_provider=tracer_provider,
        meter_provider=MeterProvider(metric_readers=[reader]),
        include_messages_counters=True,
    )
    async with open_shop(engine, table, middleware) as shop:
        yield shop


def ids(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


async def test_trace_context_is_in_the_headers_of_the_row(shop: Shop, table: Table, spans: Spans) -> None:
    await shop.publish("chair")
    async with shop.engine.connect() as connection:
        headers: dict[str, Any] | None = await connection.scalar(select(table.c.headers))
    trace_id, span_id = ids(await spans.one("orders create"))
    assert headers is not None
    assert headers["traceparent"].startswith(f"00-{trace_id:032x}-{span_id:016x}-")


async def test_headers_of_the_caller_are_left_alone(shop: Shop) -> None:
    headers = {"tenant": "acme"}
    await shop.publish("chair", headers=headers)
    await shop.publish_batch("chair", "table", headers=headers)
    assert headers == {"tenant": "acme"}


async def test_handler_continues_the_trace_of_the_publisher(
    shop: Shop, spans: Spans, tracer_provider: TracerProvider
) -> None:
    @shop.broker.subscriber("orders")
    async def handle(body: str) -> None: ...

    with tracer_provider.get_tracer("test").start_as_current_span("request") as request:
        await shop.serve("chair")
    process, create = await spans.one("orders process"), await spans.one("orders create")
    assert parent(process) == ids(create)
    assert parent(create) == (request.get_span_context().trace_id, request.get_span_context().span_id)


async def test_message_of_a_handler_continues_its_trace(shop: Shop, spans: Spans) -> None:
    @shop.broker.subscriber("orders", transactional=True)
    async def handle(body: str, publisher: BrokerOfHandler) -> None:
        await publisher.publish(body, "letters")

    @shop.broker.subscriber("letters")
    async def write(body: str) -> None: ...

    await shop.serve("chair", queue="letters")
    first, second = await spans.one("orders process"), await spans.one("letters process")
    assert ids(second)[0] == ids(first)[0]


async def test_each_attempt_has_a_span_in_the_same_trace(shop: Shop, spans: Spans) -> None:
    failures = [ValueError("not yet")]

    @shop.broker.subscriber("orders", retry_strategy=ConstantRetry(delay_seconds=0.01))
    async def handle(body: str) -> None:
        if failures:
            raise failures.pop()

    await shop.serve("chair")
    attempts, create = await spans.these("orders process", 2), await spans.one("orders create")
    assert [parent(span) for span in attempts] == [ids(create)] * 2
    assert [span.status.is_ok for span in attempts] == [False, True]


async def test_span_says_what_was_handled(shop: Shop, spans: Spans) -> None:
    messages: list[Any] = []

    @shop.broker.subscriber("orders")
    async def handle(body: str) -> None:
        messages.append(shop.broker.context.get_local("message"))

    await shop.serve("chair")
    (message,) = messages
    assert dict((await spans.one("orders process")).attributes or {}) == {
        "messaging.system": "outbox",
        "messaging.message.id": message.message_id,
        "messaging.message.conversation_id": message.correlation_id,
        "messaging.message.payload_size_bytes": 5,
        "messaging.destination_publish.name": "orders",
        "messaging.operation": "process",
    }


async def test_batch_is_linked_to_each_of_its_messages(shop: Shop, spans: Spans) -> None:
    @shop.broker.subscriber("orders", batch=True, batch_size=3, batch_wait=5.0)
    async def handle(bodies: list[str]) -> None: ...

    await shop.publish("chair", "table", "lamp")
    origins = {ids(span) for span in await spans.these("orders create", 3)}
    assert len(origins) == 3
    await shop.broker.start()
    await shop.witness.wait(Handled, 3)
    process = await spans.one("orders process")
    (batch,) = [span for span in spans.named("orders create") if ids(span) not in origins]
    assert {(link.context.trace_id, link.context.span_id) for link in batch.links} == origins
    assert parent(process) == ids(batch)
    assert (process.attributes or {})["messaging.batch.message_count"] == 3


async def test_messages_published_together_are_linked_to_that(shop: Shop, spans: Spans) -> None:
    @shop.broker.subscriber("orders")
    async def handle(body: str) -> None: ...

    await shop.publish_batch("chair", "table")
    (origin,) = spans.named("orders create")
    await shop.broker.start()
    await shop.witness.wait(Handled, 2)
    await spans.these("orders process", 2)
    linked = [span for span in spans.named("orders create") if span is not origin]
    assert [[link.context.span_id for link in span.links] for span in linked] == [[ids(origin)[1]]] * 2


async def test_messages_are_counted_and_timed(shop: Shop, reader: InMemoryMetricReader) -> None:
    @shop.broker.subscriber("orders", batch=True, batch_size=2, batch_wait=5.0)
    async def handle(bodies: list[str]) -> None: ...

    await shop.broker.start()
    await shop.publish_batch("chair", "table")
    await shop.witness.wait(Handled, 2)
    assert [point.value for point in points(reader, "messaging.publish.messages")] == [2]
    assert [point.value for point in points(reader, "messaging.process.messages")] == [2]
    assert [point.count for point in points(reader, "messaging.process.duration")] == [1]


def test_all_messages_share_one_provider(tracer_provider: TracerProvider) -> None:
    middleware = OutboxTelemetryMiddleware(tracer_provider=tracer_provider)
    provider = middleware._settings_provider_factory(None)
    assert isinstance(provider, OutboxTelemetrySettingsProvider)
    assert provider.messaging_system == "outbox"
    assert middleware._settings_provider_factory(object()) is provider

"""Where a renderer says what may be known of an error, nothing stores, logs or traces what the error says itself."""

import logging
from typing import Any

import pytest
from faststream import AckPolicy
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from faststream_outbox import NoRetry
from faststream_outbox.opentelemetry import OutboxTelemetryMiddleware
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

SECRET = "4111-1111"


def render(error: BaseException) -> str:
    return f"[{type(error).__name__} in order]"


def fail() -> None:
    try:
        raise KeyError(f"card {SECRET}")
    except KeyError as error:
        raise ValueError("card 4111-1111") from error


async def test_secret_of_an_error_is_nowhere(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    def hook(_: Any) -> None:
        fail()

    broker = stage.replace(
        last_exception_renderer=render,
        on_terminal_failure=hook,
        logger=logging.getLogger("of.the.broker"),
        middlewares=[OutboxTelemetryMiddleware(tracer_provider=provider)],
    )

    @broker.subscriber("orders", retry_strategy=NoRetry())
    async def handle(body: int) -> None:
        fail()

    @broker.subscriber("orders-at-once", ack_policy=AckPolicy.REJECT_ON_ERROR)
    async def handle_at_once(body: int) -> None:
        fail()

    @broker.subscriber(topic="orders", group="billing", retry_strategy=NoRetry())
    async def bill(body: int) -> None:
        fail()

    caplog.set_level(logging.DEBUG)
    await stage.play(1)
    await stage.send(1, "orders")
    await stage.send(1, "orders-at-once")

    async def both_died() -> bool:
        return len(await stage.sql(f"select id from {stage.dlq_table.name}")) == 2

    await eventually(both_died)
    (parked,) = await stage.has_deferred("parked")
    await broker.stop()
    letters = await stage.sql(f"select * from {stage.dlq_table.name}")
    for letter in letters:
        assert letter["last_exception"] == letter["error_message"] == "[ValueError in order]"
        assert letter["error_type"] == "ValueError"
        assert "in fail" in letter["traceback"]
        assert "KeyError" in letter["traceback"]
    assert parked.error_message == "[ValueError in order]"
    traced = [
        (span.status.description, [dict(event.attributes or {}) for event in span.events])
        for span in spans.get_finished_spans()
    ]
    assert (
        "ValueError: [ValueError in order]",
        [{"exception.type": "ValueError", "exception.message": "[ValueError in order]"}],
    ) in traced
    logged = "\n".join(logging.Formatter("%(message)s").format(record) for record in caplog.records)
    assert "failed for good (retry_terminal); kept for an operator: [ValueError in order]" in logged
    assert "on_terminal_failure raised. [ValueError in order]" in logged
    assert "ValueError: [ValueError in order]" in logged
    for place in (logged, str(traced), str([dict(letter) for letter in letters]), str(parked)):
        assert SECRET not in place

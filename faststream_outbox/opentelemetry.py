"""FastStream's OpenTelemetry middleware for the outbox: spans and durations of handlers and `publish`.

`OutboxBroker(…, middlewares=[OutboxTelemetryMiddleware()])`. The trace goes through the table in the message's
headers, so a handler's span belongs to the trace of whoever published, however much later it runs. A batch
begins a trace of its own, with a link to each of its messages.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from faststream.message import StreamMessage
from faststream.opentelemetry import TelemetryMiddleware, TelemetrySettingsProvider
from faststream.opentelemetry.consts import MESSAGING_DESTINATION_PUBLISH_NAME
from faststream.response import PublishCommand
from opentelemetry import metrics
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.trace import Span, Status, StatusCode, Tracer, TracerProvider

from faststream_outbox._internal.broker.message import Received, claims_of
from faststream_outbox._internal.broker.response import OutboxPublishCommand
from faststream_outbox._internal.outcomes.failure import Renderer, saying

__all__ = ["OutboxTelemetryMiddleware", "OutboxTelemetrySettingsProvider"]

# OpenTelemetry has deprecated the class that holds these names and keeps the new ones in a private module.
SYSTEM = "messaging.system"
MESSAGE_ID = "messaging.message.id"
CONVERSATION_ID = "messaging.message.conversation_id"
SIZE_BYTES = "messaging.message.payload_size_bytes"
BATCH_COUNT = "messaging.batch.message_count"
DESTINATION = "messaging.destination.name"


class OutboxTelemetrySettingsProvider(TelemetrySettingsProvider[Any, PublishCommand]):
    """What FastStream wants to know of a message, a batch, or a command."""

    __slots__ = ("messaging_system",)

    def __init__(self) -> None:
        self.messaging_system: str = "outbox"

    def get_consume_attrs_from_message(self, msg: StreamMessage[Any]) -> dict[str, Any]:
        """Attributes of a handler's span."""
        claims = claims_of(msg.raw_message)
        attributes: dict[str, Any] = {
            SYSTEM: self.messaging_system,
            MESSAGE_ID: msg.message_id,
            CONVERSATION_ID: msg.correlation_id,
            SIZE_BYTES: sum(len(claim.payload) for claim in claims),
            MESSAGING_DESTINATION_PUBLISH_NAME: self.get_consume_destination_name(msg),
        }
        if not isinstance(msg.raw_message, Received):
            attributes[BATCH_COUNT] = len(claims)
        return attributes

    def get_consume_destination_name(self, msg: StreamMessage[Any]) -> str:
        """The queue; of a batch, that of its first message."""
        claims = claims_of(msg.raw_message)
        return claims[0].queue if claims else ""

    def get_publish_attrs_from_cmd(self, cmd: PublishCommand) -> dict[str, Any]:
        """Attributes of a publisher's span."""
        attributes: dict[str, Any] = {SYSTEM: self.messaging_system, DESTINATION: cmd.destination}
        if cmd.correlation_id is not None:
            # Messages of a batch get correlation ids of their own, after this.
            attributes[CONVERSATION_ID] = cmd.correlation_id
        return attributes

    def get_publish_destination_name(self, cmd: PublishCommand) -> str:
        """The queue."""
        return cmd.destination


class OutboxTelemetryMiddleware(TelemetryMiddleware[OutboxPublishCommand]):
    """Traces and times handlers and `publish`."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
        include_messages_counters: bool = True,
        last_exception_renderer: Renderer | None = None,
    ) -> None:
        self.counts_in: object = meter or meter_provider or metrics.get_meter_provider()
        """Where it counts; a recorder that counts there too leaves it what both know."""
        # FastStream asks for a provider with every message: all of them get the same one.
        provider = OutboxTelemetrySettingsProvider()
        super().__init__(
            settings_provider_factory=lambda _: provider,
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=include_messages_counters,
        )
        self._renderer: Renderer | None = None
        if last_exception_renderer is not None:
            self.render_errors_with(last_exception_renderer)

    def render_errors_with(self, renderer: Renderer) -> None:
        """Keep of errors what `renderer` says, and no traceback; a broker that has one calls this. The first counts."""
        if self._renderer is None:
            self._renderer = renderer
            self._tracer: Any = _RenderingTracer(self._tracer, renderer)


class _RenderingTracer:
    """A tracer whose spans hold what a renderer says of errors."""

    def __init__(self, tracer: Tracer, renderer: Renderer) -> None:
        self.start_span = tracer.start_span
        self._tracer = tracer
        self._say = saying(renderer)

    @contextmanager
    def start_as_current_span(self, name: str, **options: Any) -> Generator[Span, None, None]:
        """As the tracer's own, which would record the error with its text and traceback."""
        with self._tracer.start_as_current_span(
            name, **options, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except Exception as error:
                kind, text = type(error).__name__, self._say(error)
                span.add_event("exception", {"exception.type": kind, "exception.message": text})
                span.set_status(Status(StatusCode.ERROR, f"{kind}: {text}"))
                raise

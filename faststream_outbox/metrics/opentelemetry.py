"""Engine events in OpenTelemetry: the durations of FastStream's middleware, and what only an outbox has.

`OutboxBroker(…, metrics_recorder=OpenTelemetryRecorder())`, and `recorder.listen(client.events)` for connections,
listeners and loops as well. A meter only: spans come from `faststream_outbox.opentelemetry`.
"""

from collections.abc import Mapping

from faststream.opentelemetry.consts import ERROR_TYPE, MESSAGING_DESTINATION_PUBLISH_NAME, OTEL_SCHEMA
from opentelemetry import metrics
from opentelemetry.metrics import Counter, Histogram, Meter, MeterProvider

from faststream_outbox.metrics.recorder import Recorder, Status, Tags
from faststream_outbox.metrics.series import ALL_SERIES, Series

__all__ = ["OpenTelemetryRecorder"]

SYSTEM = {"messaging.system": "outbox"}
DESTINATION = "messaging.destination.name"


class OpenTelemetryRecorder(Recorder):
    """Counts engine events with a meter."""

    def __init__(
        self,
        *,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
        include_messages_counters: bool = False,
        include_bus_metrics: bool = True,
    ) -> None:
        super().__init__()
        self._place: object = meter or meter_provider or metrics.get_meter_provider()
        if meter is None:
            meter = metrics.get_meter("faststream_outbox", meter_provider=meter_provider, schema_url=OTEL_SCHEMA)
        self._counters: dict[str, Counter] = {}
        self._durations: dict[str, Histogram] = {}
        self._gauges: dict[str, metrics._Gauge] = {}
        for series in ALL_SERIES:
            self._create(series, meter)
        self._running = meter.create_up_down_counter(
            "messaging.outbox.in_process", "message", "Messages whose handler runs."
        )
        self._bus = _Bus(meter, include_messages_counters) if include_bus_metrics else None

    def _create(self, series: Series, meter: Meter) -> None:
        match series.kind:
            case "counter":
                self._counters[series.name] = meter.create_counter(series.instrument, "1", series.help)
            case "gauge":
                self._gauges[series.name] = meter.create_gauge(series.instrument, "1", series.help)
            case "seconds":
                self._durations[series.name] = meter.create_histogram(series.instrument, "s", series.help)

    def _tell(self, series: Series, labels: Mapping[str, str], tags: Tags, value: float = 1) -> None:
        attributes = {**SYSTEM, **labels}
        if series.of_handler:
            attributes |= _handler(tags)
        match series.kind:
            case "counter":
                self._counters[series.name].add(value, attributes)
            case "gauge":
                self._gauges[series.name].set(value, attributes)
            case "seconds":
                self._durations[series.name].record(value, attributes)

    @property
    def counts_in(self) -> object:
        """The meter, or its provider, of the instruments that the middleware has too."""
        return self._place if self._bus is not None else None

    def _on_start(self, tags: Tags, *, bus: bool) -> None:
        self._running.add(1, {**SYSTEM, **_handler(tags)})

    def _on_end(self, tags: Tags, status: Status | None, *, bus: bool) -> None:
        self._running.add(-1, {**SYSTEM, **_handler(tags)})
        if self._bus is not None and bus and status is not None:
            self._bus.processed(tags)

    def _on_publish(self, tags: Tags) -> None:
        if self._bus is not None:
            self._bus.published(tags)


class _Bus:
    """The instruments that FastStream's own middleware has, by the same names."""

    def __init__(self, meter: Meter, include_messages_counters: bool) -> None:
        # Descriptions as FastStream's: a meter that both use must find them equal.
        self._process = meter.create_histogram(
            "messaging.process.duration", "s", "Measures the duration of process operation."
        )
        self._publish = meter.create_histogram(
            "messaging.publish.duration", "s", "Measures the duration of publish operation."
        )
        self._process_messages: Counter | None = None
        self._publish_messages: Counter | None = None
        if include_messages_counters:
            self._process_messages = meter.create_counter(
                "messaging.process.messages", "message", "Measures the number of processed messages."
            )
            self._publish_messages = meter.create_counter(
                "messaging.publish.messages", "message", "Measures the number of published messages."
            )

    def processed(self, tags: Tags) -> None:
        """A handler ended."""
        attributes = {**SYSTEM, MESSAGING_DESTINATION_PUBLISH_NAME: str(tags.get("queue", ""))}
        if tags.get("duration_seconds") is not None:
            self._process.record(tags["duration_seconds"], attributes | _failure(tags))
        if self._process_messages is not None:
            self._process_messages.add(1, attributes)

    def published(self, tags: Tags) -> None:
        """Messages were inserted, or could not be."""
        attributes = {**SYSTEM, DESTINATION: str(tags.get("queue", ""))}
        if tags.get("duration_seconds") is not None:
            self._publish.record(tags["duration_seconds"], attributes | _failure(tags))
        if self._publish_messages is not None:
            self._publish_messages.add(int(tags.get("count", 1)), attributes)


def _handler(tags: Tags) -> dict[str, str]:
    return {
        MESSAGING_DESTINATION_PUBLISH_NAME: str(tags.get("queue", "")),
        "subscriber": str(tags.get("subscriber", "")),
    }


def _failure(tags: Tags) -> dict[str, str]:
    return {ERROR_TYPE: tags["exception_type"]} if tags.get("exception_type") else {}

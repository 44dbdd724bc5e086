"""Engine events in OpenTelemetry: the durations of FastStream's middleware, and what only an outbox has.

`OutboxBroker(…, metrics_recorder=OpenTelemetryRecorder())`, and `recorder.listen(client.events)` for connections,
listeners and loops as well. A meter only: spans come from `faststream_outbox.opentelemetry`.
"""

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from faststream.opentelemetry.consts import ERROR_TYPE, MESSAGING_DESTINATION_PUBLISH_NAME, OTEL_SCHEMA
from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter, MeterProvider, Observation

from faststream_outbox._internal.metrics.recorder import Recorder, Status, Tags
from faststream_outbox._internal.metrics.sampler import Reading
from faststream_outbox._internal.metrics.series import ALL_SERIES, SAMPLED_SERIES, Series
from faststream_outbox.errors import InvalidOptionType

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
        sample_every: float | None = None,
    ) -> None:
        super().__init__(sample_every)
        _check(meter_provider, "meter_provider", MeterProvider)
        _check(meter, "meter", Meter)
        self._place: object = meter or meter_provider or metrics.get_meter_provider()
        if meter is None:
            meter = metrics.get_meter("faststream_outbox", meter_provider=meter_provider, schema_url=OTEL_SCHEMA)
        self._counters: dict[str, Counter] = {}
        self._durations: dict[str, Histogram] = {}
        self._gauges: dict[str, metrics._Gauge] = {}
        for series in ALL_SERIES:
            self._create(series, meter)
        self._sampled: dict[str, list[Observation]] = {}
        for series in SAMPLED_SERIES if sample_every is not None else ():
            meter.create_observable_gauge(series.instrument, [partial(self._observed, series.name)], "1", series.help)
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
            case "seconds" | "amount":
                unit = "s" if series.kind == "seconds" else "1"
                self._durations[series.name] = _histogram(meter, series.instrument, unit, series)

    def _tell(self, series: Series, labels: Mapping[str, str], tags: Tags, value: float = 1) -> None:
        if series.of_handler:
            labels = {**labels, **_handler(tags)}
        attributes = {**SYSTEM, **self._bounded(labels)}
        match series.kind:
            case "counter":
                self._counters[series.name].add(value, attributes)
            case "gauge":
                self._gauges[series.name].set(value, attributes)
            case "seconds" | "amount":
                self._durations[series.name].record(value, attributes)

    def show(self, readings: Sequence[Reading]) -> None:
        """Have these observed from now on."""
        sampled: dict[str, list[Observation]] = {}
        for reading in readings:
            observation = Observation(reading.value, {**SYSTEM, **reading.labels})
            sampled.setdefault(reading.series.name, []).append(observation)
        self._sampled = sampled

    def _observed(self, name: str, _: CallbackOptions) -> Sequence[Observation]:
        return self._sampled.get(name, ())

    @property
    def counts_in(self) -> object:
        """The meter, or its provider, of the instruments that the middleware has too."""
        return self._place if self._bus is not None else None

    def _on_start(self, tags: Tags, *, bus: bool) -> None:
        self._running.add(1, {**SYSTEM, **self._bounded(_handler(tags))})

    def _on_end(self, tags: Tags, status: Status | None, *, bus: bool) -> None:
        self._running.add(-1, {**SYSTEM, **self._bounded(_handler(tags))})
        if self._bus is not None and bus and status is not None:
            self._bus.processed(self._of_bus(tags))

    def _on_publish(self, tags: Tags) -> None:
        if self._bus is not None:
            self._bus.published(self._of_bus(tags))

    def _of_bus(self, tags: Tags) -> Tags:
        queue = self._bounds.bounded(DESTINATION, str(tags.get("queue", "")))
        kind = tags.get("exception_type")
        return {**tags, "queue": queue} | ({"exception_type": self._bounds.bounded(ERROR_TYPE, kind)} if kind else {})


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
        **({"group": str(tags["group"])} if tags.get("group") else {}),
    }


def _histogram(meter: Meter, name: str, unit: str, series: Series) -> Histogram:
    # Older versions take no advice on buckets: what they have is for milliseconds.
    takes_advice = "explicit_bucket_boundaries_advisory" in inspect.signature(meter.create_histogram).parameters
    advice: dict[str, Any] = {"explicit_bucket_boundaries_advisory": series.buckets} if takes_advice else {}
    return meter.create_histogram(name, unit, series.help, **advice)


def _failure(tags: Tags) -> dict[str, str]:
    return {ERROR_TYPE: tags["exception_type"]} if tags.get("exception_type") else {}


def _check(given: object, name: str, kind: type) -> None:
    if given is not None and not isinstance(given, kind):
        msg = f"{name} must be a {kind.__name__} of opentelemetry.metrics, not a {type(given).__name__}."
        raise InvalidOptionType(msg)

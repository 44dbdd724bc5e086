"""Engine events in Prometheus: FastStream's nine series, and those that only an outbox has.

`OutboxBroker(…, metrics_recorder=PrometheusRecorder(registry=registry))`, and `recorder.listen(client.events)` for
connections, listeners and loops as well. In FastStream's series the label `handler` is the queue or the topic, as its
middleware has it; in the outbox's own it is the subscriber's name. Recorders that share a registry share the series, so
they must agree on `custom_labels`.
"""

import os
from collections.abc import Callable, Mapping, Sequence

from faststream.prometheus.container import MetricsContainer
from faststream.prometheus.manager import MetricsManager
from faststream.prometheus.types import ProcessingStatus, PublishingStatus
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from faststream_outbox._internal.metrics.recorder import Recorder, Status, Tags
from faststream_outbox._internal.metrics.sampler import Reading
from faststream_outbox._internal.metrics.series import ALL_SERIES, SAMPLED_SERIES, Series
from faststream_outbox._internal.options import check_text
from faststream_outbox.errors import InvalidOption, InvalidOptionType

__all__ = ["PrometheusRecorder"]

SYSTEM = "outbox"

Metric = Counter | Gauge | Histogram

# There a gauge cannot be taken away; those of the process that asked last are shown.
_SHARES_A_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR" in os.environ


class PrometheusRecorder(Recorder):
    """Counts engine events in a registry."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        app_name: str = "",
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: Mapping[str, str | Callable[[Tags], str]] | None = None,
        include_bus_metrics: bool = True,
        sample_every: float | None = None,
    ) -> None:
        super().__init__(sample_every)
        _check(registry, app_name, metrics_prefix, received_messages_size_buckets, custom_labels)
        self._custom = dict(custom_labels or {})
        self._app_name = app_name or metrics_prefix
        names = ("app_name", "broker", *self._custom)
        self._own = {series.name: _metric(series, registry, metrics_prefix, names) for series in ALL_SERIES}
        if sample_every is not None:
            self._own |= {series.name: _metric(series, registry, metrics_prefix, names) for series in SAMPLED_SERIES}
        self._shown: dict[tuple[str, tuple[str, ...]], Gauge] = {}
        self._place = (registry, metrics_prefix)
        self._bus: MetricsManager | None = None
        if include_bus_metrics:
            container = MetricsContainer(
                registry,
                metrics_prefix=metrics_prefix,
                received_messages_size_buckets=received_messages_size_buckets,
                custom_label_names=tuple(self._custom),
            )
            self._bus = MetricsManager(container, app_name=self._app_name)

    def _labels(self, tags: Tags) -> dict[str, str]:
        return {name: value(tags) if callable(value) else value for name, value in self._custom.items()}

    def _tell(self, series: Series, labels: Mapping[str, str], tags: Tags, value: float = 1) -> None:
        if series.of_handler:
            labels = {**labels, "handler": str(tags.get("subscriber", "")), "group": str(tags.get("group", ""))}
        values = {"app_name": self._app_name, "broker": SYSTEM, **self._bounded(labels), **self._labels(tags)}
        metric = self._own[series.name].labels(**values)
        if isinstance(metric, Counter):
            metric.inc(value)
        elif isinstance(metric, Gauge):
            metric.set(value)
        else:
            metric.observe(value)

    def show(self, readings: Sequence[Reading]) -> None:
        """Set gauges, and take away those that are no more."""
        shown: dict[tuple[str, tuple[str, ...]], Gauge] = {}
        for reading in readings:
            gauge = self._own.get(reading.series.name)
            if isinstance(gauge, Gauge):
                values = {"app_name": self._app_name, "broker": SYSTEM, **reading.labels, **self._labels({})}
                gauge.labels(**values).set(reading.value)
                shown[reading.series.name, tuple(values[name] for name in gauge._labelnames)] = gauge
        for (name, place), gauge in self._shown.items():
            if (name, place) not in shown and not _SHARES_A_DIRECTORY:
                gauge.remove(*place)
        self._shown = shown

    @property
    def counts_in(self) -> object:
        """The registry and the prefix of the nine series."""
        return self._place if self._bus is not None else None

    def _on_start(self, tags: Tags, *, bus: bool) -> None:
        if self._bus is None or not bus:
            return
        handler, custom = self._queue(tags), self._labels(tags)
        self._bus.add_received_message(SYSTEM, handler, 1, **custom)
        self._bus.observe_received_messages_size(SYSTEM, handler, int(tags.get("size_bytes", 0)), **custom)
        self._bus.add_received_message_in_process(SYSTEM, handler, 1, **custom)

    def _on_end(self, tags: Tags, status: Status | None, *, bus: bool) -> None:
        if self._bus is None or not bus:
            return
        handler, custom = self._queue(tags), self._labels(tags)
        self._bus.remove_received_message_in_process(SYSTEM, handler, 1, **custom)
        if status is None:
            return
        self._bus.add_received_processed_message(SYSTEM, handler, ProcessingStatus(status), 1, **custom)
        if tags.get("duration_seconds") is not None:
            self._bus.observe_received_processed_message_duration(tags["duration_seconds"], SYSTEM, handler, **custom)
        if tags.get("exception_type"):
            kind = self._bounds.bounded("exception_type", tags["exception_type"])
            self._bus.add_received_processed_message_exception(SYSTEM, handler, kind, **custom)

    def _on_publish(self, tags: Tags) -> None:
        if self._bus is None:
            return
        queue, custom = self._queue(tags), self._labels(tags)
        status = PublishingStatus(tags.get("status", "success"))
        self._bus.add_published_message(SYSTEM, queue, status, int(tags.get("count", 1)), **custom)
        if tags.get("duration_seconds") is not None:
            self._bus.observe_published_message_duration(tags["duration_seconds"], SYSTEM, queue, **custom)
        if tags.get("exception_type"):
            kind = self._bounds.bounded("exception_type", tags["exception_type"])
            self._bus.add_published_message_exception(SYSTEM, queue, kind, **custom)

    def _queue(self, tags: Tags) -> str:
        return self._bounds.bounded("queue", str(tags.get("queue", "")))


def _metric(series: Series, registry: CollectorRegistry, prefix: str, names: tuple[str, ...]) -> Metric:
    """The series in this registry; the one that is there already, where a recorder of another broker made it."""
    name = f"{prefix}_outbox_{series.name}"
    labels = (*names, *(("handler", "group") if series.of_handler else ()), *series.labels)
    there = registry._names_to_collectors.get(name)
    if there is not None:
        return _same(there, name, labels)
    match series.kind:
        case "counter":
            return Counter(name, series.help, labels, registry=registry)
        case "gauge":
            return Gauge(name, series.help, labels, registry=registry, multiprocess_mode=series.over_processes)
        case "seconds" | "amount":
            return Histogram(name, series.help, labels, registry=registry, buckets=series.buckets)


def _same(there: object, name: str, labels: tuple[str, ...]) -> Metric:
    if isinstance(there, Metric) and set(there._labelnames) == set(labels):
        return there
    msg = (
        f"The registry has a series {name!r} with other labels than {', '.join(labels)}. "
        "Give all recorders of a registry the same custom_labels, or each its own metrics_prefix."
    )
    raise InvalidOption(msg)


def _check(registry: object, app_name: object, prefix: object, buckets: object, labels: object) -> None:
    """Refuse what Prometheus would refuse in words of its own, or only when something is counted."""
    if not isinstance(registry, CollectorRegistry):
        msg = f"registry must be a CollectorRegistry of prometheus_client, not a {type(registry).__name__}."
        raise InvalidOptionType(msg)
    check_text("app_name", app_name)
    check_text("metrics_prefix", prefix)
    if labels is not None and not isinstance(labels, Mapping):
        msg = f"custom_labels must be a mapping of names to texts or functions, not a {type(labels).__name__}."
        raise InvalidOptionType(msg)
    for name, value in (labels or {}).items():
        check_text("each name of custom_labels", name)
        if not callable(value):
            check_text(f"the value of {name!r} in custom_labels", value)
    if buckets is None:
        return
    if not isinstance(buckets, Sequence) or not all(isinstance(each, int | float) for each in buckets):
        msg = f"received_messages_size_buckets must be a list of numbers of bytes, not {type(buckets).__name__}."
        raise InvalidOptionType(msg)
    if not buckets or [*buckets] != sorted(set(buckets)):
        msg = f"received_messages_size_buckets must grow from one to the next, not {buckets!r}."
        raise InvalidOption(msg)

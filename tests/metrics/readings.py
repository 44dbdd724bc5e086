"""A recorder of each kind, and what it has counted, read in the same words."""

from abc import ABC, abstractmethod
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from faststream_outbox._internal.metrics.recorder import Recorder
from faststream_outbox._internal.metrics.series import ALL_SERIES
from faststream_outbox.metrics.opentelemetry import OpenTelemetryRecorder
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from tests.metrics.meters import points

SERIES = {series.name: series for series in ALL_SERIES}


class Reading(ABC):
    """Sums over everything that is not asked for."""

    recorder: Recorder

    @abstractmethod
    def own(self, name: str, **labels: str) -> float:
        """A series of the outbox's own: what was counted, what a gauge shows, or how often a time was taken."""

    @abstractmethod
    def running(self) -> float:
        """The gauge of handlers that run."""

    @abstractmethod
    def timed(self) -> float:
        """How many handlers were timed."""

    @abstractmethod
    def most_series(self) -> int:
        """The number of values of the label that has the most of them."""

    def all_own(self) -> dict[str, float]:
        """Every series of the outbox's own that is not zero."""
        return {name: value for name in SERIES if (value := self.own(name))}


class PrometheusReading(Reading):
    def __init__(self, **options: Any) -> None:
        self.registry = CollectorRegistry()
        self.recorder = PrometheusRecorder(registry=self.registry, **options)

    def _sum(self, name: str, labels: dict[str, str]) -> float:
        samples = [sample for metric in self.registry.collect() for sample in metric.samples]
        return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())

    def own(self, name: str, **labels: str) -> float:
        ending = {"counter": "_total", "gauge": "", "seconds": "_count", "amount": "_count"}[SERIES[name].kind]
        return self._sum(f"faststream_outbox_{name}{ending}", labels)

    def most_series(self) -> int:
        values: dict[tuple[str, str], set[str]] = {}
        for metric in self.registry.collect():
            for sample in metric.samples:
                for label, value in sample.labels.items():
                    values.setdefault((sample.name, label), set()).add(value)
        return max(map(len, values.values()))

    def bus(self, name: str, **labels: str) -> float:
        return self._sum(f"faststream_{name}", labels)

    def running(self) -> float:
        return self.bus("received_messages_in_process")

    def timed(self) -> float:
        return self.bus("received_processed_messages_duration_seconds_count")


class OpenTelemetryReading(Reading):
    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        provider = MeterProvider(metric_readers=[self.reader])
        self.recorder = OpenTelemetryRecorder(meter_provider=provider, **options)

    def own(self, name: str, **labels: str) -> float:
        series = SERIES[name]
        found = points(self.reader, series.instrument, **labels)
        return float(sum(point.count if series.kind in ("seconds", "amount") else point.value for point in found))

    def running(self) -> float:
        return float(sum(point.value for point in points(self.reader, "messaging.outbox.in_process")))

    def timed(self) -> float:
        return float(sum(point.count for point in points(self.reader, "messaging.process.duration")))

    def most_series(self) -> int:
        data = self.reader.get_metrics_data()
        assert data is not None
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        values: dict[tuple[str, str], set[Any]] = {}
        for metric in (metric for scope in scopes for metric in scope.metrics):
            for point in metric.data.data_points:
                for label, value in (point.attributes or {}).items():
                    values.setdefault((metric.name, label), set()).add(value)
        return max(map(len, values.values()))

"""A recorder of each kind, and what it has counted, read in the same words."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from faststream_outbox._internal.metrics.recorder import Recorder
from faststream_outbox._internal.metrics.series import ALL_SERIES
from faststream_outbox.events import Events
from faststream_outbox.metrics.opentelemetry import OpenTelemetryRecorder
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from tests.metrics.meters import measured, points

SERIES = {series.name: series for series in ALL_SERIES}


class Reading(ABC):
    """Sums over everything that is not asked for."""

    recorder: Recorder

    def listen(self, events: Events) -> None:
        """Let the recorder count what happens from now on."""
        self.recorder.listen(events)

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
    def labels(self) -> Iterator[tuple[str, str, object]]:
        """A series, a label of it, and a value that this has."""

    def most_series(self) -> int:
        """The number of values of the label that has the most of them."""
        return max(Counter((series, label) for series, label, _ in set(self.labels())).values())

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

    def labels(self) -> Iterator[tuple[str, str, object]]:
        for metric in self.registry.collect():
            for sample in metric.samples:
                yield from ((sample.name, label, value) for label, value in sample.labels.items())

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

    def labels(self) -> Iterator[tuple[str, str, object]]:
        for metric in measured(self.reader):
            for point in metric.data.data_points:
                yield from ((metric.name, label, value) for label, value in (point.attributes or {}).items())


class Both(Reading):
    """One of each kind, which must say the same."""

    def __init__(self) -> None:
        self.readings = PrometheusReading(), OpenTelemetryReading()

    def listen(self, events: Events) -> None:
        for reading in self.readings:
            reading.listen(events)

    def _agreed(self, ask: Callable[[Reading], float]) -> float:
        one, other = map(ask, self.readings)
        assert one == other
        return one

    def own(self, name: str, **labels: str) -> float:
        return self._agreed(lambda reading: reading.own(name, **labels))

    def running(self) -> float:
        return self._agreed(lambda reading: reading.running())

    def timed(self) -> float:
        return self._agreed(lambda reading: reading.timed())

    def labels(self) -> Iterator[tuple[str, str, object]]:
        return chain.from_iterable(reading.labels() for reading in self.readings)

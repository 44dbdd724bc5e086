"""What a meter of OpenTelemetry has measured."""

from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader


def points(reader: InMemoryMetricReader, name: str, **attributes: str) -> list[Any]:
    """The data points of an instrument that have these attributes."""
    found: list[Any] = []
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name == name:
                    found += [point for point in metric.data.data_points if attributes.items() <= _of(point).items()]
    return found


def _of(point: Any) -> dict[str, Any]:
    return dict(point.attributes or {})

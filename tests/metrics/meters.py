"""What a meter of OpenTelemetry has measured."""

from typing import Any

from opentelemetry.sdk.metrics.export import InMemoryMetricReader


def measured(reader: InMemoryMetricReader) -> list[Any]:
    """The instruments that have measured something."""
    data = reader.get_metrics_data()
    scopes = [scope for resource in (data.resource_metrics if data else ()) for scope in resource.scope_metrics]
    return [metric for scope in scopes for metric in scope.metrics]


def points(reader: InMemoryMetricReader, name: str, **attributes: str) -> list[Any]:
    """The data points of an instrument that have these attributes."""
    found = [point for metric in measured(reader) if metric.name == name for point in metric.data.data_points]
    return [point for point in found if attributes.items() <= dict(point.attributes or {}).items()]

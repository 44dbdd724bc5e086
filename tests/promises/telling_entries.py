"""Public ways in to what tells: events, metrics, relays, FastAPI, and the doubles of tests. Used by `entries`."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from opentelemetry.metrics import NoOpMeterProvider
from prometheus_client import CollectorRegistry

from faststream_outbox.events import Events, Handled
from faststream_outbox.fastapi import OutboxAPIRouter, health_router
from faststream_outbox.metrics.opentelemetry import OpenTelemetryRecorder
from faststream_outbox.metrics.prometheus import PrometheusRecorder
from faststream_outbox.relay import RelayMessage
from faststream_outbox.testing import FakeOutboxClient, fake_session, fake_sync_session
from tests.promises.entry import Entry, Place, own


def telling(place: Place) -> Iterator[Entry]:
    """All of them."""
    yield Entry("Events.subscribe", lambda listener, types: Events().subscribe(listener, types), _LISTENING)
    yield from metrics()
    yield from web(place)
    yield from doubles(place)
    message = RelayMessage(id="1", body=b"", uri="q", created_at=datetime.now(UTC))
    yield Entry("RelayMessage.with_headers", lambda **given: message.with_headers(**given).text_headers(), {"a": "b"})


_LISTENING: dict[str, Any] = {"listener": print, "types": Handled}


def metrics() -> Iterator[Entry]:
    """The recorders."""
    shown: dict[str, Any] = {"app_name": "shop", "metrics_prefix": "shop", "custom_labels": {"a": "b"}}
    shown |= {"include_bus_metrics": True, "sample_every": 15.0, "received_messages_size_buckets": [1.0, 2.0]}
    yield Entry("PrometheusRecorder", lambda **given: PrometheusRecorder(registry=CollectorRegistry(), **given), shown)
    yield Entry("PrometheusRecorder", PrometheusRecorder, {"registry": CollectorRegistry()})
    metered = {"meter_provider": NoOpMeterProvider(), "include_messages_counters": True, "sample_every": 15.0}
    yield Entry("OpenTelemetryRecorder", OpenTelemetryRecorder, metered)


FASTAPIS = (
    "setup_state redirect_slashes default lifespan routes callbacks responses deprecated dependency_overrides_provider "
    "on_startup on_shutdown underlying_driver_annotations schema_url default_response_class route_class "
    "generate_unique_id_function protocol_version prefix specification_tags"
)
"""Options of a router that are FastAPI's and FastStream's own."""


def web(place: Place) -> Iterator[Entry]:
    """What FastAPI includes."""
    routes = {"timeout": 0.5, "prefix": "/x"}
    yield Entry("health_router", lambda **given: health_router(place.broker, **given), routes)
    tables = {"outbox_table": place.table, "dlq_table": place.dlq_table, "log_tables": place.log_tables}
    theirs = {*FASTAPIS.split()}
    options = {name: value for name, value in own(OutboxAPIRouter).items() if name not in theirs}
    made = lambda **given: OutboxAPIRouter(**{"logger": None, **given})  # noqa: E731
    yield Entry("OutboxAPIRouter", made, options | {"engine": place.engine} | tables)


def doubles(place: Place) -> Iterator[Entry]:
    """What tests of applications make."""
    tables: dict[str, Any] = {"table": place.table, "dlq_table": None, "log_table": None, "events": None}
    yield Entry("FakeOutboxClient", FakeOutboxClient, tables)
    yield Entry("fake_session", fake_session, {})
    yield Entry("fake_sync_session", fake_sync_session, {})

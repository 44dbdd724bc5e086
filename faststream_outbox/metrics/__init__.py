"""What the engine does, as metrics: `PrometheusRecorder` in `.prometheus`, `OpenTelemetryRecorder` in `.opentelemetry`.

Outcomes are counted after they were written, whoever ran the handler: FastStream, or a `Worker` of your own.
FastStream's middlewares (`faststream_outbox.prometheus`, `faststream_outbox.opentelemetry`) see handlers from
inside and know spans, but neither a lost lease nor a dead letter. Use both: a broker that has both in one registry or
meter provider lets the middleware alone count what both know, so that no series is counted twice. A recorder that you
let `listen` yourself gets `include_bus_metrics=False` then.
"""

from faststream_outbox._internal.events.recorder import MetricsRecorder

__all__ = ["MetricsRecorder"]

"""Recorders of metrics; from now on `faststream_outbox.events`."""

from faststream_outbox._internal.events.recorder import MetricsRecorder, record

__all__ = ["MetricsRecorder", "record"]

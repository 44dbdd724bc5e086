"""FastStream's Prometheus middleware for the outbox: the same nine series as for any other broker.

`OutboxBroker(…, middlewares=[OutboxPrometheusMiddleware(registry=registry)])`. It sees what passes through
handlers and `publish`; what the engine does around them is counted by `faststream_outbox.metrics`. A batch
counts as many messages as it holds, under the queue of its first.
"""

from collections.abc import Callable, Sequence
from typing import Any

from faststream.message import StreamMessage
from faststream.prometheus import ConsumeAttrs, MetricsSettingsProvider, PrometheusMiddleware
from faststream.response import PublishCommand
from prometheus_client import CollectorRegistry

from faststream_outbox._internal.broker._faststream import EMPTY
from faststream_outbox._internal.broker.message import claims_of
from faststream_outbox._internal.broker.response import OutboxPublishCommand

__all__ = ["OutboxMetricsSettingsProvider", "OutboxPrometheusMiddleware"]


class OutboxMetricsSettingsProvider(MetricsSettingsProvider[Any, PublishCommand]):
    """What FastStream wants to know of a message, or of a batch."""

    __slots__ = ("messaging_system",)

    def __init__(self) -> None:
        self.messaging_system: str = "outbox"

    def get_consume_attrs_from_message(self, msg: StreamMessage[Any]) -> ConsumeAttrs:
        """Queue, size and number."""
        claims = claims_of(msg.raw_message)
        return {
            "destination_name": claims[0].queue if claims else "",
            "message_size": sum(len(claim.payload) for claim in claims),
            "messages_count": len(claims),
        }

    def get_publish_destination_name_from_cmd(self, cmd: PublishCommand) -> str:
        """The queue."""
        return cmd.destination


class OutboxPrometheusMiddleware(PrometheusMiddleware[Any, OutboxPublishCommand]):
    """Counts and times handlers and `publish`."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: dict[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        self.counts_in: tuple[CollectorRegistry, str] = (registry, metrics_prefix)
        """Where it counts; a recorder that counts there too leaves it what both know."""
        # FastStream asks for a provider with every message: all of them get the same one.
        provider = OutboxMetricsSettingsProvider()
        super().__init__(
            settings_provider_factory=lambda _: provider,
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=custom_labels,
        )

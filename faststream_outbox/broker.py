"""The FastStream adapter: broker, routers and messages.

The test broker can be imported from here too, and is registered with FastStream as soon as there is a broker.
"""

from typing import Any

from faststream_outbox._internal.broker.broker import OutboxBroker
from faststream_outbox._internal.broker.message import OutboxBatchMessage, OutboxMessage
from faststream_outbox._internal.broker.producer import OutboxProducer
from faststream_outbox._internal.broker.publisher import OutboxPublisher
from faststream_outbox._internal.broker.response import OutboxPublishCommand, OutboxResponse
from faststream_outbox._internal.broker.router import OutboxRoute, OutboxRoutePublisher, OutboxRouter
from faststream_outbox._internal.broker.subscriber import OutboxSubscriber

__all__ = [
    "OutboxBatchMessage",
    "OutboxBroker",
    "OutboxMessage",
    "OutboxProducer",
    "OutboxPublishCommand",
    "OutboxPublisher",
    "OutboxResponse",
    "OutboxRoute",
    "OutboxRoutePublisher",
    "OutboxRouter",
    "OutboxSubscriber",
    "TestOutboxBroker",
]

TestOutboxBroker: Any
"""From `faststream_outbox.testing`, when it is asked for."""


def __getattr__(name: str) -> Any:
    if name == "TestOutboxBroker":
        from faststream_outbox._internal.testing.broker import TestOutboxBroker

        return TestOutboxBroker
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)

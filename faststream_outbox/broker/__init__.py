"""The FastStream adapter: broker, routers and messages.

The test broker can be imported from here too, and is registered with FastStream as soon as this package is imported.
"""

from typing import Any

from faststream_outbox.broker import testing
from faststream_outbox.broker.broker import OutboxBroker
from faststream_outbox.broker.message import OutboxBatchMessage, OutboxMessage
from faststream_outbox.broker.publisher import OutboxPublisher
from faststream_outbox.broker.response import OutboxPublishCommand, OutboxResponse
from faststream_outbox.broker.router import OutboxRoute, OutboxRoutePublisher, OutboxRouter
from faststream_outbox.broker.subscriber import OutboxSubscriber

__all__ = [
    "OutboxBatchMessage",
    "OutboxBroker",
    "OutboxMessage",
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

testing.register()


def __getattr__(name: str) -> Any:
    if name == "TestOutboxBroker":
        return testing.TestOutboxBroker
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)

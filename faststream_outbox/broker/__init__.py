"""The FastStream adapter: broker, routers, messages, and the test broker, which registers itself."""

from faststream_outbox.broker.broker import OutboxBroker
from faststream_outbox.broker.message import OutboxBatchMessage, OutboxMessage
from faststream_outbox.broker.publisher import OutboxPublisher
from faststream_outbox.broker.response import OutboxPublishCommand, OutboxResponse
from faststream_outbox.broker.router import OutboxRoute, OutboxRoutePublisher, OutboxRouter
from faststream_outbox.broker.subscriber import OutboxSubscriber
from faststream_outbox.broker.testing import TestOutboxBroker

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

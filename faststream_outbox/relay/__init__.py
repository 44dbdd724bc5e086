"""Relay: messages of queues and topics go on to Kafka, RabbitMQ, NATS, Redis, SQS or whatever has a `Transport`.

`broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))`. A message is removed, or a topic's group
moves past it, only after the other broker has confirmed it. In order per key, parallel across keys.
"""

from faststream_outbox._internal.relay.relay import Relay
from faststream_outbox._internal.relay.status import RelayStatus
from faststream_outbox._internal.relay.target import address_of
from faststream_outbox._internal.relay.transport import Refused, RelayMessage, Result, Sent, Transport, Unavailable
from faststream_outbox.relay.sqs import SqsTransport

__all__ = [
    "Refused",
    "Relay",
    "RelayMessage",
    "RelayStatus",
    "Result",
    "Sent",
    "SqsTransport",
    "Transport",
    "Unavailable",
    "address_of",
]

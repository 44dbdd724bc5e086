"""What happens on the way to other brokers and at their far end, as types: events of the relay and the inbox.

As those of `types`, which has them among `Event`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Received:
    """A message's receipt and effects were committed to an inbox."""

    consumer: str
    source: str
    message_id: str


@dataclass(frozen=True, slots=True)
class DuplicateSkipped:
    """A message came again whose receipt an inbox has; its handler was not run."""

    consumer: str
    source: str
    message_id: str


@dataclass(frozen=True, slots=True)
class DeliveryHeldUp:
    """A message came while its first delivery was being handled: it waited so long, or is to come again (None)."""

    consumer: str
    source: str
    message_id: str
    waited_seconds: float | None


@dataclass(frozen=True, slots=True)
class ResponseReplayed:
    """A request came again, and got the answer that was kept with its receipt."""

    consumer: str
    source: str
    message_id: str


@dataclass(frozen=True, slots=True)
class ReceiptsCleaned:
    """Receipts of an inbox were deleted because they were old enough."""

    table: str
    count: int


@dataclass(frozen=True, slots=True)
class Relayed:
    """Another broker has confirmed so many messages of a batch, and refused so many; `in_flight` are under way."""

    relay: str
    transport: str
    sent: int
    refused: int
    in_flight: int
    duration_seconds: float


@dataclass(frozen=True, slots=True)
class RelayDown:
    """A broker that messages are relayed to does not answer; they wait, and nothing is counted as an attempt."""

    relay: str
    transport: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class RelayUp:
    """A broker that messages are relayed to answers again."""

    relay: str
    transport: str
    outage_seconds: float

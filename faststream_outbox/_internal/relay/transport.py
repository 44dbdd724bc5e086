"""What a relay sends through, and what can become of a message there.

`Transport` is all that a relay asks of a broker: three methods. Adapters of FastStream's brokers stand in `brokers`,
one for SQS in `sqs`; an application may bring its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from faststream_outbox._internal.relay.message import RelayMessage


@dataclass(frozen=True, slots=True)
class Sent:
    """The broker has confirmed that it keeps the message."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker does not take this message: too large, unroutable, unknown exchange.

    It becomes a dead letter with the error; with `again` it is tried again first, as the relay's retry strategy says.
    """

    error: BaseException
    again: bool = False


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The broker did not answer, or cannot take anything now; the message is not to blame, and nothing is counted."""

    error: BaseException


Result = Sent | Refused | Unavailable
SENT = Sent()


@runtime_checkable
class Transport(Protocol):
    """A way to a broker.

    A transport may also have: `name`, for events; `keeps_order = True`, if of all messages of one `order_key` in one
    `send` it takes those in front of the first that it does not take, and none behind; `is_open`, False while it
    cannot be used because whatever it belongs to has not started; and `missing`, which says what to do about that.
    """

    async def start(self) -> None:
        """Connect. What it raises is reported, and tried again."""
        ...

    async def stop(self) -> None:
        """Let go of what `start` took; also where that has failed."""
        ...

    async def send(self, messages: Sequence[RelayMessage]) -> Sequence[Result]:
        """Send them all at once, wait until the broker has confirmed each, and say what became of each.

        What it raises means that nobody knows: all of them are `Unavailable`, and come again.
        """
        ...

"""What a relay sends, what it sends through, and what can become of a message there.

`Transport` is all that a relay asks of a broker: three methods. Adapters of FastStream's brokers stand in `brokers`,
one for SQS in the public `relay.sqs`; an application may bring its own. `RelayMessage` is what a message says of
itself, apart from any broker's way to say it: `line` makes it of claims and deliveries, and transports put each fact in
its native place. `wrapping` adds what CloudEvents 1.0 want: `"cloudevents"` is their binary mode, where attributes are
headers and the body stays as it is, `"cloudevents-structured"` makes a JSON object of both.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal, Protocol, runtime_checkable
from uuid import NAMESPACE_OID, uuid5

from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.options import check_choice
from faststream_outbox._internal.queue.claim import Claim

Received = Claim | Delivery

CONTENT_TYPE = "content-type"
CORRELATION_ID = "correlation_id"
MESSAGE_ID = "message_id"
REPLY_TO = "reply_to"
JSON = "application/json"
_OWN_PLACE = frozenset((CONTENT_TYPE, CORRELATION_ID, MESSAGE_ID, REPLY_TO))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayMessage:
    """One message to send."""

    id: str
    """The same for every try, and no other message's: what the far end tells duplicates by."""
    body: bytes
    headers: dict[str, Any] = field(default_factory=dict)
    """JSON values, trace context included; without what has a field of its own here."""
    content_type: str | None = None
    correlation_id: str = ""
    reply_to: str = ""
    key: str | None = None
    order_key: str | None = None
    """Messages of one are sent one after the other; None has no order. A topic itself is one, where there is no key."""
    uri: str
    """The queue, or the URI of the topic and the key."""
    created_at: datetime
    group: str | None = None
    """Who relays it, of a topic: what two groups send are two messages."""

    def with_headers(self, **headers: Any) -> "RelayMessage":
        """The same with further headers."""
        return replace(self, headers={**self.headers, **headers})

    def text_headers(self) -> dict[str, str]:
        """Headers for brokers that have texts only: what is none as JSON."""
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.headers.items()}


def received(one: Received, group: str | None = None) -> RelayMessage:
    """The message of a claim or a delivery."""
    found = one.headers
    # Most messages say next to nothing of themselves.
    headers = {name: value for name, value in found.items() if name not in _OWN_PLACE} if found else {}
    content_type = JSON if isinstance(one, Delivery) and one.is_json else found.get(CONTENT_TYPE)
    message_id = id_of(one)
    return RelayMessage(
        id=message_id,
        body=one.payload,
        headers=headers,
        content_type=content_type if isinstance(content_type, str) else None,
        correlation_id=str(found.get(CORRELATION_ID) or message_id),
        reply_to=str(found.get(REPLY_TO) or ""),
        key=one.key,
        order_key=one.uri if isinstance(one, Delivery) else one.key,
        uri=one.uri if isinstance(one, Delivery) else one.queue,
        created_at=one.created_at,
        group=group,
    )


def id_of(one: Received) -> str:
    """The message's id; of a topic's message without an event_id one that no message of another log has."""
    if isinstance(one, Claim) or one.has_event_id:
        return str(one.message_id)
    # Its own id is made of the position, which other logs have too: a far end that knows duplicates by ids would
    # drop what it has never seen.
    said = blake2b(one.payload, digest_size=16).hexdigest()
    return str(uuid5(NAMESPACE_OID, f"outbox:{one.position}:{one.uri}:{one.created_at.isoformat()}:{said}"))


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
"""What a transport answers for each message."""
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


Envelope = Literal["cloudevents", "cloudevents-structured"]
STRUCTURED = "application/cloudevents+json"
_PREFIXES = {"kafka": "ce_", "confluent": "ce_", "rabbit": "cloudEvents_"}
"""What the bindings of these protocols put before an attribute's name; of the others it is `ce-`."""


def check_envelope(envelope: object) -> None:
    """Refuse what is no envelope."""
    if envelope is not None:
        check_choice("envelope", envelope, ("cloudevents", "cloudevents-structured"))


def wrapping(envelope: Envelope | None, transport: str) -> Callable[[RelayMessage], RelayMessage] | None:
    """What makes an event of a message for this transport; None leaves messages as they are."""
    if envelope is None:
        return None
    if envelope == "cloudevents-structured":
        return structured
    prefix = _PREFIXES.get(transport, "ce-")
    return lambda message: binary(message, prefix)


def attributes(message: RelayMessage) -> dict[str, str]:
    """The event's attributes; `source` and `type` are headers of those names, else the queue or the URI."""
    headers = message.headers
    found = {
        "specversion": "1.0",
        "id": message.id,
        "source": str(headers.get("source") or message.uri),
        "type": str(headers.get("type") or message.uri),
        "time": message.created_at.isoformat(),
    }
    if message.key is not None:
        found["partitionkey"] = message.key
    for name in ("traceparent", "tracestate"):
        if headers.get(name):
            found[name] = str(headers[name])
    return found


def binary(message: RelayMessage, prefix: str = "ce-") -> RelayMessage:
    """Attributes as headers."""
    return message.with_headers(**{f"{prefix}{name}": value for name, value in attributes(message).items()})


def structured(message: RelayMessage) -> RelayMessage:
    """Attributes and body as one JSON object."""
    event: dict[str, Any] = dict(attributes(message))
    if message.content_type is not None:
        event["datacontenttype"] = message.content_type
    try:
        event["data"] = json.loads(message.body) if message.content_type == JSON else message.body.decode()
    except ValueError:
        event["data_base64"] = base64.b64encode(message.body).decode()
    body = json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()
    return replace(message, body=body, content_type=STRUCTURED)

"""A message on its way to another broker: what it says of itself, apart from any broker's way to say it.

Made of claims and deliveries by `line`, and read by transports, which put each fact in its native place.
"""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from faststream_outbox._internal.log.delivery import Delivery
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

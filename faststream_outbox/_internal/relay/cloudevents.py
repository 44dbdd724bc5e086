"""CloudEvents 1.0: a message with the attributes that others expect of an event, beside its body or around it.

`relay(…, envelope="cloudevents")` is the binary mode: attributes are headers, the body stays as it is.
`"cloudevents-structured"` makes a JSON object of both. Pure. Used by `line`.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from faststream_outbox._internal.options import check_choice
from faststream_outbox._internal.relay.message import JSON, RelayMessage

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

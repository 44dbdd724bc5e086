"""CloudEvents 1.0, beside the body and around it."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

from faststream_outbox._internal.relay.transport import structured, wrapping
from faststream_outbox.relay import RelayMessage
from tests.broker.topics.stage import Stage
from tests.relay.playing import Played
from tests.relay.publishing import publish
from tests.waiting import eventually

ATTRIBUTES = {
    "specversion": "1.0",
    "id": "id-1",
    "source": "orders",
    "type": "OrderPlaced",
    "time": "2030-01-01T00:00:00+00:00",
    "partitionkey": "order-1",
}


def message(body: bytes = b'{"id":1}', content_type: str | None = "application/json") -> RelayMessage:
    return RelayMessage(
        id="id-1",
        body=body,
        headers={"type": "OrderPlaced"},
        content_type=content_type,
        key="order-1",
        uri="orders",
        created_at=datetime(2030, 1, 1, tzinfo=UTC),
    )


def test_binary_has_attributes_as_headers_of_the_protocols_prefix() -> None:
    for transport, prefix in (("nats", "ce-"), ("kafka", "ce_"), ("rabbit", "cloudEvents_")):
        wrap = wrapping("cloudevents", transport)
        event = wrap(message())
        assert event.body == message().body
        assert event.headers == {"type": "OrderPlaced"} | {f"{prefix}{name}": v for name, v in ATTRIBUTES.items()}


def test_structured_is_one_object() -> None:
    event = structured(message())
    assert event.content_type == "application/cloudevents+json"
    assert json.loads(event.body) == ATTRIBUTES | {"datacontenttype": "application/json", "data": {"id": 1}}


def test_structured_has_bytes_as_base64_and_text_as_text() -> None:
    bodies: list[Any] = [json.loads(structured(message(body, None)).body) for body in (b"\xff", b"text")]
    assert base64.b64decode(bodies[0]["data_base64"]) == b"\xff"
    assert bodies[1]["data"] == "text"


async def test_a_relay_wraps_what_it_sends(stage: Stage) -> None:
    played = Played()
    stage.broker.relay("orders", to=played, envelope="cloudevents")
    await publish(stage, 1)
    await stage.broker.start()
    await eventually(lambda: played.taken)
    assert played.taken[0].headers["ce-id"] == played.taken[0].id

"""Commands become messages: those of a batch as if each had been published alone."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from faststream_outbox._internal.broker.producer import alike, envelope
from faststream_outbox._internal.broker.response import OutboxPublishCommand
from faststream_outbox._internal.envelope import Envelope, checked, plain
from faststream_outbox.errors import InvalidMessage, InvalidMessageType
from tests.cases import each

ENCODED = [(b"{}", "application/json"), (b"a", "text/plain"), (b"b", None), (b"{}", "application/json")]


@each("headers", [None, {}, {"a": "1"}, {"content-type": "text/plain"}])
@each("keys", [[None] * 4, ["k"] * 4, ["k", None, "l", "k"]])
def test_batch_is_what_its_messages_would_be_alone(headers: dict[str, Any] | None, keys: list[str | None]) -> None:
    encoded = ENCODED[1:3] * 2 if headers and "content-type" in headers else ENCODED
    cmd = OutboxPublishCommand(*range(4), queue="orders", headers=headers, priority=3, reply_to="answers")
    alone = [
        checked(envelope(cmd, payload, content_type, correlation_id=None, key=key))
        for (payload, content_type), key in zip(encoded, keys, strict=True)
    ]
    assert list(alike(cmd, encoded, keys)) == alone


def test_batch_whose_content_type_is_not_that_of_its_bodies_is_refused() -> None:
    cmd = OutboxPublishCommand(*range(4), queue="orders", headers={"content-type": "text/plain"})
    with pytest.raises(InvalidMessage, match="content-type"):
        list(alike(cmd, ENCODED, [None] * 4))


@each("key", [["k"], 7, b"k"])
def test_batch_with_a_key_that_is_no_text_is_refused(key: Any) -> None:
    cmd = OutboxPublishCommand(*range(4), queue="orders")
    with pytest.raises(InvalidMessageType, match="key must be a str"):
        list(alike(cmd, ENCODED, ["k", key, "k", "k"]))


@each("body", [b"{}", bytearray(b"{}"), "text", 7])
@each("key", [None, "k", "", "a\x00b", 7])
@each("queue", ["orders", "", "$paused", "a\x00b", 7])
def test_plain_message_is_what_its_envelope_would_be(queue: Any, body: Any, key: Any) -> None:
    own_id = uuid4()
    facts: dict[str, Any] = {"queue": queue, "body": body, "key": key, "message_id": own_id}
    try:
        whole = checked(Envelope(headers={"content-type": "text/plain"}, **facts))
    except (InvalidMessage, InvalidMessageType) as error:
        with pytest.raises(type(error), match=re.escape(str(error))):
            plain(queue, body, '{"content-type":"text/plain"}', key, own_id)
    else:
        assert plain(queue, body, '{"content-type":"text/plain"}', key, own_id) == whole


@each(
    "said",
    [
        {"headers": {"a": "b"}},
        {"reply_to": "answers"},
        {"activate_in": timedelta(0)},
        {"activate_at": datetime.now(UTC)},
        {"timer_id": "t"},
        {"timer_conflict": "replace"},
        {"priority": 1},
        {"priority": False},
    ],
)
def test_message_that_says_more_is_not_plain(said: Any) -> None:
    assert OutboxPublishCommand(1, queue="orders", key="k").is_plain
    assert not OutboxPublishCommand(1, queue="orders", **said).is_plain

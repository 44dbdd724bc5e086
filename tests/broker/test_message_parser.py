"""A body is decoded as FastStream decodes it, whatever its content type says."""

from typing import Any

import pytest
from faststream.message import StreamMessage, decode_message

from faststream_outbox._internal.broker.message import decoded
from tests.cases import each

TYPES = ["application/json", "application/json; charset=utf-8", "text/plain", "application/octet-stream", "", None]
BODIES = [b'{"a": 1}', b'"text"', b"null", b"", b"{", "[1]".encode("utf-16"), b"\xff", "ß".encode()]


@each("content_type", TYPES)
@each("body", BODIES)
def test_body_is_what_faststream_makes_of_it(body: bytes, content_type: str | None) -> None:
    message: StreamMessage[Any] = StreamMessage(body, body, content_type=content_type)
    try:
        expected = decode_message(message)
    except ValueError as error:
        with pytest.raises(type(error)):
            decoded(message)
    else:
        assert decoded(message) == expected


@each("body", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b"9" * 5000])
def test_bytes_that_python_cannot_read_as_json_are_bytes_unless_they_are_said_to_be_json(body: bytes) -> None:
    assert decoded(StreamMessage(body, body, content_type=None)) == body
    with pytest.raises((ValueError, RecursionError)):
        decoded(StreamMessage(body, body, content_type="application/json; charset=utf-8"))

"""The log's message: as it is published, and as it is read.

`checked` refuses what PostgreSQL would refuse before any SQL is sent, so that bad input cannot abort
the caller's transaction. A payload is any JSON value or bytes. Used by `append` and by readers.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from faststream_outbox._internal.envelope import MAX_BODY_BYTES, size_of
from faststream_outbox._internal.log.sharing.slots import checked_uri, slot_of
from faststream_outbox._internal.options import is_encodable
from faststream_outbox.errors import InvalidMessage, InvalidMessageType

EVENT_ID = "event_id"
CONTENT_TYPE = "content-type"


@dataclass(slots=True)
class OutboxMessage:
    """A message of the log. What the database assigns is None until it was read."""

    uri: str
    payload: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    position: int | None = None
    transaction_id: int | None = None
    tick: int | None = None

    @property
    def event_id(self) -> str | None:
        """What the publisher named it by, if anything."""
        value = self.metadata.get(EVENT_ID)
        return None if value is None else str(value)


@dataclass(frozen=True, slots=True)
class CheckedMessage:
    """A message that PostgreSQL will take, in the shape of a row."""

    uri: str
    slot: int
    payload: str | None
    body: bytes | None
    metadata: str
    event_id: UUID | None
    given_id: object = None
    """The event_id as it was given."""


def checked(message: OutboxMessage) -> CheckedMessage:
    """The message as a row, or the error that says what is wrong with it."""
    if not _is_message(message):
        msg = f"Publish OutboxMessage objects, not a {type(message).__name__}: publish(session, OutboxMessage(…))."
        raise InvalidMessageType(msg)
    uri = checked_uri(message.uri)
    payload = message.payload
    text: str | None = None
    body: bytes | None = None
    if isinstance(payload, bytes | bytearray | memoryview):
        body = bytes(payload)
    else:
        text = _as_json(payload, "The payload")
    size = len(body) if body is not None else size_of(text or "")
    if size > MAX_BODY_BYTES:
        msg = f"The payload has {size} bytes; {MAX_BODY_BYTES} fit. Store it elsewhere and send its name."
        raise InvalidMessage(msg)
    given: object = message.metadata
    if not isinstance(given, Mapping):
        msg = f"metadata must be a mapping of names to values, not {type(given).__name__}."
        raise InvalidMessageType(msg)
    metadata = _as_json(dict(given), "metadata") if given else "{}"
    event_id = given.get(EVENT_ID)
    return CheckedMessage(uri, slot_of(uri), text, body, metadata, unique_id(event_id), event_id)


def _is_message(value: object) -> bool:
    return isinstance(value, OutboxMessage)


def _as_json(value: object, what: str) -> str:
    try:
        text = _encoder.encode(value)
        text.encode()
    except TypeError as error:
        msg = f"{what} must be a JSON value or bytes: {error}."
        raise InvalidMessageType(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{what} cannot be stored as JSON: {error}."
        raise InvalidMessage(msg) from error
    return text


def _uuid(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    msg = f"Object of type {type(value).__name__} is not JSON serializable"
    raise TypeError(msg)


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_uuid)


def unique_id(event_id: object) -> UUID | None:
    """An event_id as the index knows it; any other text than a UUID is made one, the same every time."""
    if event_id is None or isinstance(event_id, UUID):
        return event_id
    if not isinstance(event_id, str | int):
        msg = f"metadata['event_id'] must be a UUID or text, not {type(event_id).__name__}."
        raise InvalidMessageType(msg)
    try:
        return UUID(str(event_id))
    except ValueError:
        if not is_encodable(str(event_id)):
            msg = f"event_id contains a lone surrogate, which is not text: {event_id!r}."
            raise InvalidMessage(msg) from None
        return uuid5(NAMESPACE_OID, str(event_id))


UNREADABLE = (ValueError, RecursionError)
"""What Python says to JSON that PostgreSQL takes: numbers of thousands of digits, thousands of levels."""


def read_payload(text: str | None, body: bytes | None, metadata: Mapping[str, Any]) -> Any:
    """The payload of a row: JSON, or bytes that say of themselves that they are JSON, or bytes; raises `UNREADABLE`."""
    if text is not None:
        return json.loads(text)
    if body and metadata.get(CONTENT_TYPE) == "application/json":
        try:
            return json.loads(body)
        except UNREADABLE:
            return bytes(body)
    return bytes(body or b"")


def shown_payload(text: str | None, body: bytes | None, metadata: Mapping[str, Any]) -> Any:
    """The payload of a row for somebody who only wants to see it: the text itself where it cannot be read."""
    try:
        return read_payload(text, body, metadata)
    except UNREADABLE:
        return text

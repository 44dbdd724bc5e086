"""The envelope: a message as it is published, checked before any SQL is sent.

PostgreSQL answers bad input with an error that aborts the caller's whole transaction. So whatever
it would refuse (NUL, lone surrogates, over-long names, numbers and times out of range) is refused
here, by `checked`, with the caller's transaction untouched. Built by publishers, read by `publish`.
"""

import json
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from uuid import UUID

from faststream_outbox._internal.schema.names import PAUSED
from faststream_outbox._internal.schema.tables import NAME_LENGTH
from faststream_outbox.errors import InvalidMessage, InvalidMessageType

TimerConflict = Literal["ignore", "extend", "replace"]
"""What a timer_id means that is taken: leave this message out, move the other one's time, or take its place."""
OnDuplicate = Literal["error", "ignore"]
"""What a message_id means that is in the topic already."""

MAX_BODY_BYTES = 250_000_000
"""What every driver carries in one statement."""
MOST_HEADER_VALUES = 1_000_000
"""Ten times as many are too many for jsonb; and it writes out all digits of 1e308 when it is read."""
MAX_DELAY = timedelta(days=365_000)
SMALLINT = range(-32768, 32768)
SHORT_HEADERS = 500
"""Characters of headers that are remembered once they are read: a thousand of them, in half a megabyte."""
UNREADABLE = "x-outbox-unreadable"
"""The header that says why a row's own headers cannot be read: numbers of thousands of digits, thousands of levels."""

# One encoder for all: `json.dumps` builds one for every call that is not by its defaults.
_as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_SINGLE = (str, int, float)
_CONFLICTS = ("ignore", "extend", "replace")
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """One message to publish. `activate_in` counts from the server's clock, `activate_at` is aware."""

    queue: str
    body: bytes
    headers: Mapping[str, Any] | None = None
    key: str | None = None
    priority: int = 0
    activate_in: timedelta | None = None
    activate_at: datetime | None = None
    timer_id: str | None = None
    timer_conflict: TimerConflict = "ignore"
    message_id: UUID | None = None

    @property
    def is_scheduled(self) -> bool:
        """Whether the caller gave a due time."""
        return self.activate_in is not None or self.activate_at is not None


class CheckedEnvelope(NamedTuple):
    """An envelope that PostgreSQL will take, in the shape of a row."""

    queue: str
    payload: bytes
    headers: str | None
    due_at: datetime | None
    due_in: float
    key: str | None
    priority: int
    timer_id: str | None
    conflict: str
    message_id: UUID | None

    def with_content(self, payload: bytes, headers: str | None) -> "CheckedEnvelope":
        """The same with a body and headers that need no check."""
        return _new(CheckedEnvelope, (self[0], payload, headers, *self[3:]))


# Half the time of the constructor.
_new = tuple.__new__


def plain(queue: object, body: object, headers: str | None, key: object, message_id: UUID) -> CheckedEnvelope:
    """A message that is due now and says nothing else, with headers that need no check."""
    name, payload = checked_queue(queue), checked_body(body)
    text = None if key is None else checked_text(key, "key")
    return _new(CheckedEnvelope, (name, payload, headers, None, 0.0, text, 0, None, "ignore", message_id))


def checked_text(value: object, what: str, *, length: int = NAME_LENGTH) -> str:
    """`value` as a plain string that PostgreSQL can store, or an error that names `what`."""
    if not isinstance(value, str):
        # Cut, and of whatever cannot be printed too.
        msg = f"{what} must be a str, not {type(value).__name__}: {reprlib.repr(value)}."
        raise InvalidMessageType(msg)
    if not value:
        msg = f"{what} must not be empty."
        raise InvalidMessage(msg)
    if len(value) > length:
        msg = f"{what} has {len(value)} characters; at most {length} fit: {value[:40]!r}…"
        raise InvalidMessage(msg)
    if "\x00" in value:
        msg = f"{what} contains a NUL character, which PostgreSQL cannot store: {value!r}."
        raise InvalidMessage(msg)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        msg = f"{what} contains a lone surrogate, which is not text: {value!r}."
        raise InvalidMessage(msg) from error
    # A plain str: drivers adapt by exact type, and str enums are subclasses.
    return str.__str__(value)


def checked_queue(value: object) -> str:
    """`value` as the name of a queue."""
    # Few names come again and again.
    return _known_queue(value) if type(value) is str else _checked_queue(value)


def _checked_queue(value: object) -> str:
    queue = checked_text(value, "queue")
    if queue == PAUSED:
        msg = f"The queue name {PAUSED!r} is reserved for pausing queues; choose another."
        raise InvalidMessage(msg)
    return queue


_known_queue = lru_cache(maxsize=1024)(_checked_queue)


def header_mapping(headers: object) -> dict[str, Any]:
    """Headers as a dict of their own, whose names are text."""
    if not isinstance(headers, Mapping):
        msg = f"headers must be a mapping of names to values, {{'name': 'value'}}, not {type(headers).__name__}."
        raise InvalidMessageType(msg)
    for name in headers:
        if not isinstance(name, str):
            msg = f"Header names must be str, not {type(name).__name__}: {reprlib.repr(name)}."
            raise InvalidMessageType(msg)
    return dict(headers)


def checked_headers(headers: object) -> str | None:
    """Headers as JSON text."""
    if headers is None:
        return None
    try:
        text = _as_json(header_mapping(headers))
        text.encode()
    except TypeError as error:
        msg = f"Header values must be JSON values (str is best): {error}."
        raise InvalidMessageType(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"Headers cannot be stored as JSON: {error}."
        raise InvalidMessage(msg) from error
    if "\\u0000" in text and _ESCAPED_NUL.search(text):
        msg = "Headers contain a NUL character, which PostgreSQL cannot store."
        raise InvalidMessage(msg)
    # Each of them takes two characters at least.
    if len(text) > 2 * MOST_HEADER_VALUES and _has_more_values(headers, MOST_HEADER_VALUES):
        msg = f"Headers hold more than {MOST_HEADER_VALUES} values. Put them into the body."
        raise InvalidMessage(msg)
    return text


def _has_more_values(headers: object, most: int) -> bool:
    """Whether there are more values than so many, at any depth."""
    count, waiting = 0, [headers]
    while waiting and count <= most:
        inner = waiting.pop()
        if isinstance(inner, list | tuple):
            count += len(inner)
            waiting.extend(inner)
        elif isinstance(inner, Mapping):
            count += len(inner)
            waiting.extend(inner.values())
    return count > most


def size_of(text: str) -> int:
    """Bytes of a text on its way to the server, whatever its letters."""
    return len(text) if text.isascii() else len(text.encode())


def read_headers(text: str | None) -> dict[str, Any]:
    """Headers of a row, whoever wrote it: none if they are no object, a word about it if they cannot be read."""
    if text is None or text == "{}":
        return {}
    if len(text) <= SHORT_HEADERS:
        known = _known_headers(text)
        if known is not None:
            return known.copy()
    return _read_headers(text)


@lru_cache(maxsize=1024)
def _known_headers(text: str) -> dict[str, Any] | None:
    """Headers to copy, because most messages of a queue have the same; None where a copy would share what is inside."""
    headers = _read_headers(text)
    return headers if all(value is None or isinstance(value, _SINGLE) for value in headers.values()) else None


def _read_headers(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {UNREADABLE: f"{type(error).__name__}: {error}"}
    return value if isinstance(value, dict) else {}


def _checked_delay(delay: object) -> float:
    if not isinstance(delay, timedelta):
        msg = f"activate_in must be a timedelta, not {type(delay).__name__}."
        raise InvalidMessageType(msg)
    if delay > MAX_DELAY:
        msg = f"activate_in is {delay}; at most {MAX_DELAY.days} days are possible."
        raise InvalidMessage(msg)
    return max(0.0, delay.total_seconds())


def _checked_moment(at: object) -> datetime:
    if not isinstance(at, datetime):
        msg = f"activate_at must be a datetime, not {type(at).__name__}."
        raise InvalidMessageType(msg)
    if at.utcoffset() is None:
        msg = f"activate_at must be timezone-aware, e.g. datetime.now(UTC): {at!r} is naive."
        raise InvalidMessage(msg)
    # The first and the last year are infinite for one driver and unreadable for another.
    if not 2 <= at.year <= 9998:
        msg = f"activate_at {at!r} is outside the years that can be stored: 2 to 9998."
        raise InvalidMessage(msg)
    return at.astimezone(UTC)


def checked_body(body: object) -> bytes:
    """A body as bytes."""
    if type(body) is bytes and len(body) <= MAX_BODY_BYTES:
        return body
    if not isinstance(body, bytes | bytearray | memoryview):
        msg = f"The body must be bytes, not {type(body).__name__}: encode it first."
        raise InvalidMessageType(msg)
    payload = bytes(body)
    if len(payload) > MAX_BODY_BYTES:
        msg = f"The body has {len(payload)} bytes; {MAX_BODY_BYTES} fit. Store it elsewhere and send its name."
        raise InvalidMessage(msg)
    return payload


def _checked_priority(priority: object) -> int:
    if not isinstance(priority, int) or isinstance(priority, bool):
        msg = f"priority must be an int, not {type(priority).__name__}."
        raise InvalidMessageType(msg)
    if priority not in SMALLINT:
        msg = f"priority {priority} is out of range: {SMALLINT.start} to {SMALLINT.stop - 1}."
        raise InvalidMessage(msg)
    return int(priority)


def checked_message_id(message_id: object) -> UUID | None:
    """A message's own id, or None to draw one."""
    if message_id is not None and not isinstance(message_id, UUID):
        msg = f"message_id must be a UUID, not {type(message_id).__name__}."
        raise InvalidMessageType(msg)
    return message_id


def _is_envelope(value: object) -> bool:
    return isinstance(value, Envelope)


def checked(envelope: Envelope) -> CheckedEnvelope:
    """The envelope as a row, or the error that says what is wrong with it."""
    if not _is_envelope(envelope):
        msg = f"Publish Envelope objects, not a {type(envelope).__name__}: publish(session, table, *envelopes)."
        raise InvalidMessageType(msg)
    if envelope.activate_in is not None and envelope.activate_at is not None:
        msg = "Pass activate_in or activate_at, not both: they are two ways to say when the message is due."
        raise InvalidMessage(msg)
    if envelope.timer_conflict not in _CONFLICTS:
        msg = f"timer_conflict must be one of {_CONFLICTS}, not {envelope.timer_conflict!r}."
        raise InvalidMessage(msg)
    if envelope.timer_conflict != "ignore" and envelope.timer_id is None:
        msg = f"timer_conflict={envelope.timer_conflict!r} needs a timer_id."
        raise InvalidMessage(msg)
    return CheckedEnvelope(
        queue=checked_queue(envelope.queue),
        payload=checked_body(envelope.body),
        headers=checked_headers(envelope.headers),
        due_at=None if envelope.activate_at is None else _checked_moment(envelope.activate_at),
        due_in=0.0 if envelope.activate_in is None else _checked_delay(envelope.activate_in),
        key=None if envelope.key is None else checked_text(envelope.key, "key"),
        priority=_checked_priority(envelope.priority),
        timer_id=None if envelope.timer_id is None else checked_text(envelope.timer_id, "timer_id"),
        conflict=str.__str__(envelope.timer_conflict),
        message_id=checked_message_id(envelope.message_id),
    )

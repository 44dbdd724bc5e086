"""What a message says, as it is shown, and as text that somebody may change.

Shown, it is decoded, pretty-printed, and without what a redactor takes out. Numbers keep every digit. A redactor that
fails hides everything: what it would have taken out is not known.

Of a dead letter, body and headers may be changed, and nothing else than what was typed changes: JSON keeps its digits,
escapes and double keys. What cannot be changed here without harm is said, and left to the command line: bytes, a
carriage return, which browsers change, a body that is too long, and whatever the redactor hides, because its masks
would be written back. Used by the screens that show messages.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus

from faststream_outbox._internal.options import check_text
from faststream_outbox._internal.queue.dead_letters import DeadLetter
from faststream_outbox._internal.text import compact, hexdump, is_json, reindented
from faststream_outbox.errors import InvalidOption

logger = logging.getLogger("faststream_outbox.dashboard")

LONGEST = 100_000
"""Characters of a body that are shown."""
HIDDEN = "hidden"
_BYTES_SHOWN = 4096


@dataclass(frozen=True, slots=True)
class Content:
    """What a redactor gets, and gives back changed."""

    place: str
    """The queue, or the topic's URI."""
    key: str | None
    body: Any
    """What JSON says, with `Decimal` for numbers that have a point; a str for other text, or bytes."""
    headers: Mapping[str, Any]
    error: str | None = None
    traceback: str | None = None


Redact = Callable[[Content], Content | None]
"""Takes out what must not be seen; None hides body, headers, error and traceback."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A content as text."""

    body: str
    kind: str
    """"JSON", "text", "bytes" or "hidden"."""
    headers: Sequence[tuple[str, str]]
    error: str | None
    traceback: str | None
    is_hidden: bool = False
    is_cut: bool = False
    size: int = 0


def decoded(payload: object) -> Any:
    """A body as Python knows it: JSON if it is some, else text, else bytes."""
    if isinstance(payload, bytes | bytearray | memoryview):
        raw = bytes(payload)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return raw
        try:
            return json.loads(text, parse_float=Decimal)
        except (ValueError, RecursionError):
            return text
    return payload


def shown(content: Content, redact: Redact | None, *, may_read: bool = True, size: int = 0) -> Shown:
    """A content as text, after the redactor."""
    if not may_read:
        return Shown("", HIDDEN, (), None, None, is_hidden=True, size=size)
    redacted: Content | None = content
    if redact is not None:
        try:
            redacted = redact(content)
        except Exception:
            logger.exception("The redactor failed on a message of %r; it is hidden.", content.place)
            return Shown("", HIDDEN, (), None, None, is_hidden=True, size=size)
    if redacted is None:
        return Shown("", HIDDEN, (), None, None, is_hidden=True, size=size)
    text, kind = _text_of(redacted.body)
    headers = [
        (str(name), value if isinstance(value, str) else pretty(value)) for name, value in redacted.headers.items()
    ]
    cut = text[:LONGEST]
    return Shown(cut, kind, headers, redacted.error, redacted.traceback, is_cut=len(cut) < len(text), size=size)


def _text_of(body: object) -> tuple[str, str]:
    if isinstance(body, bytes):
        return hexdump(body[:_BYTES_SHOWN]), "bytes"
    if isinstance(body, str):
        return body, "text"
    return pretty(body), "JSON"


def pretty(value: Any, indent: int = 0) -> str:
    """JSON with every digit of its numbers, two spaces a level."""
    inner, outer = "  " * (indent + 1), "  " * indent
    match value:
        case Mapping() if value:
            lines = [f"{inner}{_string(str(name))}: {pretty(each, indent + 1)}" for name, each in value.items()]
            return "{\n" + ",\n".join(lines) + f"\n{outer}}}"
        case list() | tuple() if value:
            return "[\n" + ",\n".join(inner + pretty(each, indent + 1) for each in value) + f"\n{outer}]"
        case Decimal():
            return str(value)
        case Mapping():
            return "{}"
        case _:
            return json.dumps(value, ensure_ascii=False, default=str)


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def hide_fields(*patterns: str, mask: str = "•••") -> Redact:
    """A redactor that masks the values of these fields of JSON bodies and headers, at any depth.

    patterns: names of fields, whatever their case; `*` stands for anything, as in "card_*".
    mask: what is shown instead.

    A body that is no JSON has no fields to find, so it is hidden; errors and tracebacks may quote any of it, so
    tracebacks are too.
    """
    for pattern in patterns:
        check_text("each of patterns", pattern)
    lowered = [pattern.lower() for pattern in patterns]

    def is_secret(name: object) -> bool:
        return any(fnmatchcase(str(name).lower(), pattern) for pattern in lowered)

    def masked(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: mask if is_secret(name) else masked(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [masked(each) for each in value]
        return value

    def redact(content: Content) -> Content | None:
        if isinstance(content.body, str | bytes):
            return None
        return replace(content, body=masked(content.body), headers=masked(content.headers), traceback=None)

    return redact


LARGEST = 384 * 1024
"""Bytes of a body or of headers, as a form sends them."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a form shows; a part that is None cannot be changed here."""

    body: str | None
    headers: str | None
    why_no_body: str | None = None
    why_no_headers: str | None = None
    version: str = ""
    """What the letter was when the form was made."""


def version_of(letter: DeadLetter) -> str:
    """Another one as soon as anything of the letter that can be edited is."""
    written = json.dumps(letter.headers, sort_keys=True, default=str).encode()
    return sha256(len(written).to_bytes(8) + written + letter.payload).hexdigest()[:32]


def draft(letter: DeadLetter, redact: Redact | None) -> Draft:
    """A letter, to be changed."""
    body, why_no_body = _edited_text(letter.payload)
    headers: str | None = pretty(letter.headers)
    why_no_headers = None if _fits(headers or "") else "They are too long for a form."
    given = Content(letter.queue, letter.key, decoded(letter.payload), letter.headers)
    left = _redacted(given, redact)
    hides = "The redactor hides a part of this, and an edit would write its masks back."
    if left is None or left.body != given.body:
        body, why_no_body = None, hides
    if left is None or dict(left.headers) != dict(given.headers):
        why_no_headers = hides
    return Draft(body, None if why_no_headers else headers, why_no_body, why_no_headers, version_of(letter))


def _edited_text(payload: bytes) -> tuple[str | None, str | None]:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return None, "The body is no text."
    if "\r" in text or "\x00" in text:
        return None, "The body has characters that a form would change."
    shown = reindented(text) or text
    return (shown, None) if _fits(shown) else (None, "The body is too long for a form.")


def _fits(text: str) -> bool:
    return len(text) <= LARGEST and len(quote_plus(text)) <= LARGEST


def _redacted(content: Content, redact: Redact | None) -> Content | None:
    if redact is None:
        return content
    try:
        return redact(content)
    except Exception:  # noqa: BLE001 - logged where the message is shown; whatever it hides stays as it is
        return None


def new_body(typed: str, letter: DeadLetter) -> bytes | None:
    """The body that was typed; None if it is the one that it was."""
    before = letter.payload.decode()
    text = typed.replace("\r\n", "\n")
    if text == (reindented(before) or before):
        return None
    if is_json(before):
        if not is_json(text):
            msg = "The body was JSON and is none any more, so nothing is changed."
            raise InvalidOption(msg)
        # As it was: indented only for the eyes.
        text = compact(text) if "\n" not in before.strip() else text
    written = text.encode(errors="replace")
    return None if written == letter.payload else written


def new_headers(typed: str, letter: DeadLetter) -> Mapping[str, Any] | None:
    """The headers that were typed; None if they are those that were."""
    try:
        found = json.loads(typed)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        msg = 'The headers are no JSON object, such as {"source": "shop"}, so nothing is changed.'
        raise InvalidOption(msg)
    return None if found == dict(letter.headers) else found

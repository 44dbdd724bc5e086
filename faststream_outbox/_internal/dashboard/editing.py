"""A dead letter as text that somebody may change, and back: body and headers. Pure. Used by the message's screen.

Nothing else than what was typed changes: JSON keeps its digits, escapes and double keys. What cannot be changed here
without harm is said, and left to the command line: bytes, a carriage return, which browsers change, a body that is too
long, and whatever the redactor hides, because its masks would be written back.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote_plus

from faststream_outbox._internal.dashboard.content import Content, Redact, decoded, pretty
from faststream_outbox._internal.queue.admin.dead_letters import DeadLetter
from faststream_outbox._internal.reindented import compact, is_json, reindented
from faststream_outbox.errors import InvalidOption

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

"""Values as text for a terminal: times, ages, bodies, and whatever a stranger has written.

Nothing that is returned here holds a control character other than the line breaks between lines that are ours. Pure.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from faststream_outbox._internal.doctor.spoken import counted
from faststream_outbox._internal.reindented import reindented
from faststream_outbox._internal.schema.line import one_line

LONGEST_BODY = 20_000
"""Characters of a body that are shown, unless all of it is asked for."""
LONGEST_GLANCE = 60
_BYTES_A_LINE = 16
_MOST_HEX = 1024


def moment(at: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def age(seconds: float) -> str:
    """Seconds in the two largest units that say something."""
    left = max(0, round(seconds))
    if left < 60:
        return f"{left}s"
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0"))


def count(number: int, *, is_estimate: bool = False) -> str:
    """A number, and whether it may be more."""
    return f"{number:,}+" if is_estimate else f"{number:,}"


def lines(text: str) -> str:
    """A text of several lines, each without anything that is not seen."""
    # Only what is a line break everywhere is one; others of Unicode's are escaped with the rest.
    return "\n".join(one_line(line.expandtabs(4)) for line in text.removesuffix("\n").split("\n"))


def glance(payload: bytes, longest: int = LONGEST_GLANCE) -> str:
    """The beginning of a body, on one line."""
    text = _text(payload[: 4 * longest + 3] if len(payload) > 4 * longest + 3 else payload, is_cut=True)
    if text is None:
        return f"{counted(len(payload), 'byte')}: {payload[:16].hex(' ')}{'…' if len(payload) > 16 else ''}"
    shown = one_line(" ".join(text.split()))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def body(payload: bytes, *, is_full: bool = False) -> str:
    """A body to be read: indented if it is JSON, as bytes if it is no text."""
    text = _text(payload)
    if text is None:
        return _dumped(payload, is_full=is_full)
    text = text.replace("\r\n", "\n")
    longest = len(text) if is_full else LONGEST_BODY
    if len(text) <= longest:
        return lines(reindented(text) or text)
    return f"{lines(text[:longest])}\n… {len(text) - longest:,} more characters: --full shows them"


def mapping(values: Mapping[str, Any]) -> str:
    """Headers, as indented JSON; nothing for none."""
    return json.dumps(values, indent=2, ensure_ascii=False, default=str) if values else ""


def _text(payload: bytes, *, is_cut: bool = False) -> str | None:
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        # The last character may have been cut in two.
        if not is_cut or error.start < len(payload) - 3:
            return None
        text = payload[: error.start].decode()
    return None if "\x00" in text else text


def _dumped(payload: bytes, *, is_full: bool) -> str:
    shown = payload if is_full else payload[:_MOST_HEX]
    rows = [
        f"{at:08x}  {shown[at : at + _BYTES_A_LINE].hex(' '):<47}  {_printable(shown[at : at + _BYTES_A_LINE])}"
        for at in range(0, len(shown), _BYTES_A_LINE)
    ]
    if len(shown) < len(payload):
        rows.append(f"… {len(payload) - len(shown):,} more bytes: --full shows them")
    return "\n".join(rows)


def _printable(part: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)

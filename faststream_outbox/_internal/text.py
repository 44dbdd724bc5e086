"""Text of others on one line of ours: names, keys and errors are a stranger's input.

Whoever can publish chooses names. A line break would forge a line of the log, or end a comment in SQL that is there to
be pasted; an escape sequence would paint the operator's terminal. Used for lines of the log and for what
`validate_schema` prints.

JSON with other white space and nothing else changed: numbers, escapes and double keys stay as they were written.

Read and written again by `json`, a body would come back as another one. Pure. Used by `cli` and `dashboard`.

Values as text for a terminal: times, ages, bodies, and whatever a stranger has written.

Nothing that is returned here holds a control character other than the line breaks between lines that are ours. Pure.

Numbers and texts of strangers, as a finding says them. Pure.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

# Control characters, separators of lines, marks that turn the direction of text, and halves of surrogate pairs.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str) -> str:
    """The text with everything escaped that is not seen, or that ends a line."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
_STEP = "  "


def is_json(text: str) -> bool:
    """Whether it is an object or an array in JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def reindented(text: str) -> str | None:
    """The same JSON, one member a line; None where it is none."""
    if not is_json(text):
        return None
    parts: list[str] = []
    depth = 0
    before = ""
    for token in _TOKEN.findall(text):
        if token in "}]":
            depth -= 1
        if (token in "}]" and before not in "{[") or (before and before in "{[," and token not in "}]"):
            parts.append("\n" + _STEP * depth)
        parts.append(": " if token == ":" else token)
        if token in "{[":
            depth += 1
        before = token
    return "".join(parts)


def compact(text: str) -> str:
    """The same JSON without white space between its parts."""
    return "".join(_TOKEN.findall(text))


_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_SIZES = ("bytes", "kB", "MB", "GB", "TB")
LONGEST = 200


def duration(seconds: float) -> str:
    """A time in its largest unit: "5 minutes"."""
    for size, unit in _UNITS:
        if seconds >= size:
            return counted(int(seconds // size), unit)
    return "less than a second"


def counted(number: float, noun: str, plural: str = "") -> str:
    """A number with its noun: "1 message", "12,000 messages"."""
    return f"{number:,.0f} {noun}" if number == 1 else f"{number:,.0f} {plural or f'{noun}s'}"


def size(number: float) -> str:
    """Bytes in a unit that can be read: "1.5 GB"."""
    step = 0
    while number >= 1024 and step < len(_SIZES) - 1:
        number, step = number / 1024, step + 1
    return f"{number:.1f} {_SIZES[step]}" if step else f"{number:.0f} bytes"


def quote(text: str | None) -> str:
    """Somebody else's text on one line, cut where it is long."""
    line = one_line(" ".join((text or "").split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def name(text: str | None) -> str:
    """A name of somebody else's, in quotes."""
    return f"'{quote(text)}'"


def first_line(error: BaseException) -> str:
    """What an error says, without the row or the statement that it is about."""
    origin = getattr(error, "orig", None) or error
    lines = str(origin).splitlines()
    return quote(lines[0]) if lines else type(origin).__name__


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

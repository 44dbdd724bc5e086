"""Numbers, times, bodies, and what strangers have written, as people read them.

Whoever can publish chooses names, keys and errors. A line break in one would forge a line of a log, or end a comment in
SQL that is there to be pasted; an escape sequence would paint an operator's terminal. So `one_line` and `lines` let no
control character through, nor do those that use them: `quote`, `glance` and `body`.

Each place has its own style of saying how long something takes: `age` is the command line's, `spaced` the dashboard's,
`duration` the doctor's, `spoken` that of one message's status. JSON is indented without being read, so that numbers,
escapes and double keys stay as they were written.

Pure. Called by whatever shows something: the command line, the dashboard, the doctor, `overview`, the log of events,
and the SQL that `validate_schema` prints.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

# Control characters, separators of lines, marks that turn the direction of text, and halves of surrogate pairs.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST_QUOTE = 200
LONGEST_GLANCE = 60
LONGEST_BODY = 20_000
"""Characters of a body that are shown, unless all of it is asked for."""
_BYTES_A_LINE = 16
_MOST_HEX = 1024


def one_line(text: str) -> str:
    """The text with everything escaped that is not seen, or that ends a line."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def lines(text: str) -> str:
    """A text of several lines, each without anything that is not seen."""
    # Only what is a line break everywhere is one; others of Unicode's are escaped with the rest.
    return "\n".join(one_line(line.expandtabs(4)) for line in text.removesuffix("\n").split("\n"))


def quote(text: str | None) -> str:
    """Somebody else's text on one line, cut where it is long."""
    line = one_line(" ".join((text or "").split()))
    return line if len(line) <= LONGEST_QUOTE else f"{line[: LONGEST_QUOTE - 1]}…"


def name(text: str | None) -> str:
    """A name of somebody else's, in quotes."""
    return f"'{quote(text)}'"


def count(number: int, *, is_estimate: bool = False) -> str:
    """A number, and whether it may be more: "12,345", "10,000+"."""
    return f"{number:,}+" if is_estimate else f"{number:,}"


def counted(number: float, noun: str, plural: str = "") -> str:
    """A number with its noun: "1 message", "12,000 messages"."""
    return f"{number:,.0f} {noun}" if number == 1 else f"{number:,.0f} {plural or f'{noun}s'}"


def size_of_1000(number: float) -> str:
    """Bytes in units of a thousand: "512 B", "4.1 kB"."""
    return _sized(number, 1000, ("B", "kB", "MB", "GB"))


def size_of_1024(number: float) -> str:
    """Bytes in units of 1024, as the server counts them: "10 bytes", "1.5 GB"."""
    return _sized(number, 1024, ("bytes", "kB", "MB", "GB", "TB"))


def _sized(number: float, step: int, units: tuple[str, ...]) -> str:
    place = 0
    while number >= step and place < len(units) - 1:
        number, place = number / step, place + 1
    return f"{number:.1f} {units[place]}" if place else f"{number:.0f} {units[0]}"


class Unit(NamedTuple):
    """A unit of time, and its names in each style."""

    seconds: int
    short: str
    spaced: str
    noun: str


SECOND = Unit(1, "s", "s", "second")
MINUTE = Unit(60, "m", "min", "minute")
HOUR = Unit(3600, "h", "h", "hour")
DAY = Unit(86_400, "d", "d", "day")
_UNITS = (DAY, HOUR, MINUTE, SECOND)


def parts(seconds: float) -> list[tuple[int, Unit]]:
    """A time in whole units, from the largest that it has one of down to the seconds."""
    left, found = max(0, int(seconds)), list[tuple[int, Unit]]()
    for unit in _UNITS:
        number, left = divmod(left, unit.seconds)
        if number or found or unit is SECOND:
            found.append((number, unit))
    return found


def _two(seconds: float) -> list[tuple[int, Unit]]:
    """The largest unit, and the next one unless there is nothing of it."""
    first, *others = parts(seconds)
    return [first, *((number, unit) for number, unit in others[:1] if number)]


def age(seconds: float) -> str:
    """In the two largest units, close together: "59s", "4m 10s", "1d 1h"."""
    return " ".join(f"{number}{unit.short}" for number, unit in _two(round(seconds)))


def spaced(seconds: float) -> str:
    """In the two largest units, apart: "850 ms", "12 s", "4 min 10 s"."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return " ".join(f"{number} {unit.spaced}" for number, unit in _two(seconds))


def duration(seconds: float) -> str:
    """In its largest unit: "5 minutes"."""
    if seconds < 1:
        return "less than a second"
    number, unit = parts(seconds)[0]
    return counted(number, unit.noun)


def spoken(time: timedelta) -> str:
    """As one says it, in a unit of which there are two at least: "90 minutes", "2 hours", "1.5 seconds"."""
    seconds = max(0.0, time.total_seconds())
    for unit in (DAY, HOUR, MINUTE):
        if seconds >= 2 * unit.seconds:
            return f"{seconds / unit.seconds:.0f} {unit.noun}s"
    return f"{seconds:.1f} seconds"


def moment(at: datetime | None) -> str:
    """A time in UTC, to the second: "2026-03-01 12:30:05Z"."""
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def stamp(at: datetime | None) -> str:
    """The same with its zone spelled out: "2026-03-01 12:30:05 UTC"; nothing for none."""
    return "" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def glance(payload: bytes, longest: int = LONGEST_GLANCE) -> str:
    """The beginning of a body, on one line."""
    text = _decoded(payload[: 4 * longest + 3] if len(payload) > 4 * longest + 3 else payload, is_cut=True)
    if text is None:
        return f"{counted(len(payload), 'byte')}: {payload[:16].hex(' ')}{'…' if len(payload) > 16 else ''}"
    shown = one_line(" ".join(text.split()))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def body(payload: bytes, *, is_full: bool = False) -> str:
    """A body to be read: indented if it is JSON, as bytes if it is no text."""
    text = _decoded(payload)
    if text is None:
        rest = 0 if is_full else max(0, len(payload) - _MOST_HEX)
        dump = hexdump(payload[: len(payload) - rest])
        return f"{dump}\n… {rest:,} more bytes: --full shows them" if rest else dump
    text = text.replace("\r\n", "\n")
    longest = len(text) if is_full else LONGEST_BODY
    if len(text) <= longest:
        return lines(reindented(text) or text)
    return f"{lines(text[:longest])}\n… {len(text) - longest:,} more characters: --full shows them"


def _decoded(payload: bytes, *, is_cut: bool = False) -> str | None:
    try:
        text = payload.decode()
    except UnicodeDecodeError as error:
        # The last character may have been cut in two.
        if not is_cut or error.start < len(payload) - 3:
            return None
        text = payload[: error.start].decode()
    return None if "\x00" in text else text


def hexdump(payload: bytes) -> str:
    """Bytes, sixteen a line, with what can be read of them."""
    return "\n".join(_dumped(at, payload[at : at + _BYTES_A_LINE]) for at in range(0, len(payload), _BYTES_A_LINE))


def _dumped(at: int, row: bytes) -> str:
    return f"{at:08x}  {row.hex(' '):<47}  {''.join(chr(byte) if 32 <= byte < 127 else '.' for byte in row)}"


def mapping(values: Mapping[str, Any]) -> str:
    """Headers, as indented JSON; nothing for none."""
    return json.dumps(values, indent=2, ensure_ascii=False, default=str) if values else ""


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
    made: list[str] = []
    depth = 0
    before = ""
    for token in _TOKEN.findall(text):
        if token in "}]":
            depth -= 1
        if (token in "}]" and before not in "{[") or (before and before in "{[," and token not in "}]"):
            made.append("\n" + _STEP * depth)
        made.append(": " if token == ":" else token)
        if token in "{[":
            depth += 1
        before = token
    return "".join(made)


def compact(text: str) -> str:
    """The same JSON without white space between its parts."""
    return "".join(_TOKEN.findall(text))


_CURSOR = re.compile(r"(\d{1,18}):(\d{1,18})", re.ASCII)


def parsed_number(text: str) -> int | None:
    """The number that somebody typed, where a row can have it; else None."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < 2**63 else None


def parsed_id(text: str | None) -> int | UUID | None:
    """The id of a message that somebody typed, if anybody did: a number, or a UUID; None where it is neither."""
    number = parsed_number(text or "")
    if number is not None:
        return number
    try:
        return UUID(text or "")
    except ValueError:
        return None


def parsed_moment(text: str) -> datetime | None:
    """The time that somebody typed, of UTC where it names no zone; None where it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def parsed_cursor(text: str) -> tuple[int, int] | None:
    """Tick and position of a place in a log, as `TICK:POSITION`; None where it is none."""
    found = _CURSOR.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))

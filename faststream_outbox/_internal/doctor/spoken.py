"""Numbers and texts of strangers, as a finding says them. Pure."""

from faststream_outbox._internal.schema.line import one_line

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

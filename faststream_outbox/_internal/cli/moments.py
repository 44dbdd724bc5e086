"""Times and lengths of time as people write them: `2026-11-17T10:00`, `2h`, `1h30m`, `7d`.

A time without a zone is UTC, as everything that is printed. A length where a time is wanted means: so long ago. Used as
parsers of options.
"""

import re
from datetime import UTC, datetime, timedelta

import typer

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_LENGTH = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def parse_length(text: str) -> timedelta:
    """A length of time, such as 90s, 15m, 2h, 7d or 1h30m."""
    given = text.strip().lower()
    try:
        if re.fullmatch(r"\d+(\.\d+)?", given, re.ASCII):
            return timedelta(seconds=float(given))
        if _LENGTH.fullmatch(given):
            return sum((timedelta(**{_UNITS[unit]: float(many)}) for many, unit in _PART.findall(given)), timedelta())
    except OverflowError:
        pass
    msg = f"{text!r} is no length of time. Write 90s, 15m, 2h, 7d or 1h30m."
    raise typer.BadParameter(msg)


def parse_moment(text: str) -> datetime:
    """A time, or a length of time ago."""
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.now(UTC) - parse_length(text)
    except (typer.BadParameter, OverflowError):
        msg = f"{text!r} is no time. Write 2026-11-17T10:00 (UTC), 2026-11-17T10:00+02:00, or 2h for two hours ago."
        raise typer.BadParameter(msg) from None

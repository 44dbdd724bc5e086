"""Checks that options of both engines share: counts, seconds, words, moments, and names that nobody knows.

Called when a worker or a reader is described and before an operator's question is asked, so that the error points at
the line that did it and not at a statement.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from difflib import get_close_matches

from faststream_outbox.errors import InvalidOption, InvalidOptionType

LONGEST_SECONDS = 365 * 24 * 3600.0
BIGINT = range(-(2**63), 2**63)
MOST_ROWS = 2**31 - 1
"""What any statement takes as a limit."""


def check_count(name: str, value: object, *, most: int | None = None) -> None:
    """Refuse what is no number of at least one."""
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{name} must be an int, not {type(value).__name__}."
        raise InvalidOptionType(msg)
    if value < 1:
        msg = f"{name} must be at least 1, not {value}."
        raise InvalidOption(msg)
    if most is not None and value > most:
        msg = f"{name} must be at most {most:,}, not {value}."
        raise InvalidOption(msg)


def check_seconds(name: str, value: object, *, zero: bool = False) -> None:
    """Refuse what is no finite time above zero, or from zero on."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        msg = f"{name} must be a number of seconds, not {type(value).__name__}."
        raise InvalidOptionType(msg)
    if not math.isfinite(value) or value > LONGEST_SECONDS or value < 0 or (value == 0 and not zero):
        msg = f"{name} must be a finite number of seconds above 0, not {value}."
        raise InvalidOption(msg)


def check_number(name: str, value: object, *, is_bounded: bool = True) -> None:
    """Refuse what is no id or position: a whole number that a bigint holds."""
    if not isinstance(value, int) or isinstance(value, bool):
        msg = f"{name} must be an int, not {type(value).__name__}."
        raise InvalidOptionType(msg)
    if is_bounded and value not in BIGINT:
        msg = f"{name} is out of range: ids lie between {BIGINT.start} and {BIGINT.stop - 1}."
        raise InvalidOption(msg)


def check_text(name: str, value: object) -> None:
    """Refuse what PostgreSQL cannot compare with its texts."""
    if not isinstance(value, str):
        msg = f"{name} must be a str, not {type(value).__name__}."
        raise InvalidOptionType(msg)
    if "\x00" in value or not is_encodable(value):
        msg = f"{name} contains a NUL character or a lone surrogate, which PostgreSQL cannot store: {value[:40]!r}."
        raise InvalidOption(msg)


def is_encodable(value: str) -> bool:
    """Whether a text has no lone surrogate in it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_moment(name: str, value: object) -> None:
    """Refuse what is no time with a zone, of the years that every driver can send."""
    if not isinstance(value, datetime):
        msg = f"{name} must be a datetime, not {type(value).__name__}."
        raise InvalidOptionType(msg)
    if value.utcoffset() is None or not 2 <= value.year <= 9998:
        msg = f"{name} must be timezone-aware and of the years 2 to 9998, e.g. datetime.now(UTC), not {value!r}."
        raise InvalidOption(msg)


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse what is none of the words that are allowed."""
    if value not in allowed:
        msg = f"{name} must be one of {tuple(allowed)}, not {value!r}."
        raise InvalidOption(msg)


def checked_flag(name: str, value: object) -> bool:
    """`value` if it is True or False: any other would be taken for one of them."""
    if not isinstance(value, bool):
        msg = f"{name} must be True or False, not {value!r}."
        raise InvalidOptionType(msg)
    return value


def nearest(name: str, known: Iterable[str], what: str) -> str:
    """What to say of a name that is not `known`: the nearest one, or else a few that are."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    if not names:
        return f"no {what} is known yet."
    return f"known are {', '.join(map(repr, names[:10]))}{', …' if len(names) > 10 else '.'}"

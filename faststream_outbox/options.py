"""Checks that options of both engines share: counts, seconds, one of several words, and names that nobody knows.

Called when a worker or a reader is described, so that the error points at the line that did it.
"""

import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from faststream_outbox.errors import InvalidOption, InvalidOptionType

LONGEST_SECONDS = 365 * 24 * 3600.0


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

"""Delays and due times that came from a user, made safe to add to now.

A delay is a finite number of seconds from 0 to `LONGEST_DELAY_SECONDS`, a time is in UTC; what cannot be
read as either raises `InvalidOption`. Called by the retry strategies. Pure functions.
"""

import math
from datetime import UTC, datetime
from typing import TypeGuard

from faststream_outbox.errors import InvalidOption

LONGEST_DELAY_SECONDS = 100 * 365.25 * 86_400
"""A hundred years. A longer delay is cut to it, so that now plus the delay fits PostgreSQL and Python."""


def bounded_seconds(value: object, source: str) -> float:
    """`value` as a delay: 0 if it is negative, cut if it is too long; `source` names who said it."""
    if not is_number(value):
        msg = f"{source} is {value!r}: it must be seconds as an int or a float, and not NaN."
        raise InvalidOption(msg)
    return float(min(max(0, value), LONGEST_DELAY_SECONDS))


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is an int or a float other than NaN; infinity is a number, a bool is not."""
    # `math.isnan` fails on an int that no float can hold; this comparison does not.
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf <= value <= math.inf


def in_utc(moment: object, source: str) -> datetime:
    """`moment` in UTC: times of one zone are subtracted by its wall clock, which jumps twice a year."""
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        msg = f"{source} is {moment!r}: it must be a datetime with a time zone, such as datetime.now(UTC)."
        raise InvalidOption(msg)
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # Within a day of the first or the last moment that a datetime can hold.
        return moment.replace(tzinfo=UTC)

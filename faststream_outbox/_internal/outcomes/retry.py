"""When a failed message runs again, or never: the retry strategies, and the one function that asks them.

`next_delay` promises the engine a finite number of seconds from 0 to `LONGEST_DELAY_SECONDS`, or None for a dead
letter, whatever a user's strategy returns; what cannot be read as a time raises `InvalidOption`. Users pass one of
these strategies, a subclass, or any object that has `get_next_attempt_delay` (seconds) or `get_next_attempt_at` (an
aware datetime). Delays that users name elsewhere are made safe here too, by `bounded_seconds`.

`attempts_count` is the number of handler runs including the one that just failed: 1 at the first failure.
`last_attempt_at` is the moment of that failure; delays count from it. Pure functions. Called by the engines.
"""

import math
import random
import sys
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeGuard, runtime_checkable

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


@runtime_checkable
class RetryStrategyProto(Protocol, metaclass=ABCMeta):
    """What a `retry_strategy` offers; subclassing is not needed."""

    @abstractmethod
    def get_next_attempt_delay(
        self,
        *,
        first_attempt_at: datetime,
        last_attempt_at: datetime,
        attempts_count: int,
        exception: BaseException | None = None,
    ) -> float | None:
        """Seconds from `last_attempt_at` until the next run, or None to give the message up."""


class _Strategy(RetryStrategyProto, ABC):
    """Both methods, of which a subclass may override either or both.

    `get_next_attempt_at` asks `get_next_attempt_delay` and never the other way round, so overrides
    that call `super()` add up, and the two cannot call each other for ever.
    """

    def get_next_attempt_at(
        self,
        *,
        first_attempt_at: datetime,
        last_attempt_at: datetime,
        attempts_count: int,
        exception: BaseException | None = None,
    ) -> datetime | None:
        """The time of the next run in UTC, or None to give the message up."""
        delay = self.get_next_attempt_delay(
            first_attempt_at=first_attempt_at,
            last_attempt_at=last_attempt_at,
            attempts_count=attempts_count,
            exception=exception,
        )
        if delay is None:
            return None
        failed_at = in_utc(last_attempt_at, "last_attempt_at")
        pause = timedelta(seconds=bounded_seconds(delay, f"The result of {type(self).__name__}.get_next_attempt_delay"))
        return failed_at + min(pause, datetime.max.replace(tzinfo=UTC) - failed_at)


@dataclass(frozen=True, kw_only=True)
class NoRetry(_Strategy):
    """Give the message up at its first failure."""

    def get_next_attempt_delay(
        self,
        *,
        first_attempt_at: datetime,
        last_attempt_at: datetime,
        attempts_count: int,
        exception: BaseException | None = None,
    ) -> float | None:
        return None


@dataclass(frozen=True, kw_only=True)
class _RetryStrategyTemplate(_Strategy, ABC):
    """Limits and jitter around the schedule of a subclass.

    `jitter_factor` multiplies each delay by `1 + U(-jitter_factor/2, +jitter_factor/2)`.
    `max_attempts` counts handler runs. `max_total_delay_seconds` bounds the time from the first
    attempt to the next one. An override that does not call `super()` is not held to these limits.
    """

    jitter_factor: float = 0.0
    max_attempts: int | None = None
    max_total_delay_seconds: float | None = None
    # None is the shared generator, which is seeded anew in a forked worker; a private one would not be.
    _random: random.Random | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._require("jitter_factor", "a number from 0 to 2, such as 0.2", zero=True, most=2.0)
        if self.max_total_delay_seconds is not None:
            self._require("max_total_delay_seconds", "seconds above 0, or None for no limit")
        if self.max_attempts is not None and (type(self.max_attempts) is not int or self.max_attempts < 1):
            msg = f"max_attempts={self.max_attempts!r} cannot work: pass a whole number from 1, or None."
            raise InvalidOption(msg)

    def _require(self, name: str, wanted: str, *, zero: bool = False, most: float = sys.float_info.max) -> None:
        value: object = getattr(self, name)
        if not is_number(value) or not 0 <= value <= most or (value == 0 and not zero):
            msg = f"{type(self).__name__}: {name}={value!r} cannot work: pass {wanted}."
            raise InvalidOption(msg)

    @abstractmethod
    def _scheduled_seconds(self, earlier_failures: float) -> float:
        """The delay before limits and jitter; may be infinite."""

    def _ceiling_seconds(self) -> float:
        return LONGEST_DELAY_SECONDS

    def get_next_attempt_delay(
        self,
        *,
        first_attempt_at: datetime,
        last_attempt_at: datetime,
        attempts_count: int,
        exception: BaseException | None = None,
    ) -> float | None:
        """Seconds from `last_attempt_at` until the next run, or None when a limit is reached."""
        if self.max_attempts is not None and attempts_count >= self.max_attempts:
            return None
        earlier_failures = float(min(max(attempts_count - 1, 0), 2**53))  # Larger ints may not convert.
        ceiling = self._ceiling_seconds()
        half = self.jitter_factor / 2
        jitter = (self._random or random).uniform(-half, half)
        delay = min(min(self._scheduled_seconds(earlier_failures), ceiling) * (1 + jitter), ceiling)
        if self.max_total_delay_seconds is not None:
            spent = in_utc(last_attempt_at, "last_attempt_at") - in_utc(first_attempt_at, "first_attempt_at")
            if spent.total_seconds() + delay > self.max_total_delay_seconds:
                return None
        return delay


@dataclass(frozen=True, kw_only=True)
class ConstantRetry(_RetryStrategyTemplate):
    """The same delay after every failure."""

    delay_seconds: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("delay_seconds", "seconds above 0, or use NoRetry()")

    def _scheduled_seconds(self, earlier_failures: float) -> float:
        return float(self.delay_seconds)


@dataclass(frozen=True, kw_only=True)
class LinearRetry(_RetryStrategyTemplate):
    """`initial_delay_seconds` after the first failure, `step_seconds` more after each later one."""

    initial_delay_seconds: float
    step_seconds: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("initial_delay_seconds", "seconds above 0")
        self._require("step_seconds", "seconds, 0 or more", zero=True)

    def _scheduled_seconds(self, earlier_failures: float) -> float:
        return self.initial_delay_seconds + self.step_seconds * earlier_failures


@dataclass(frozen=True, kw_only=True)
class ExponentialRetry(_RetryStrategyTemplate):
    """`initial_delay_seconds`, times `multiplier` after each later failure; jitter respects the cap."""

    initial_delay_seconds: float
    multiplier: float = 2.0
    max_delay_seconds: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("initial_delay_seconds", "seconds above 0")
        self._require("multiplier", "a number above 0, such as 2.0")
        if self.max_delay_seconds is not None:
            self._require("max_delay_seconds", "seconds above 0, or None for no cap")

    def _ceiling_seconds(self) -> float:
        longest = super()._ceiling_seconds()
        return longest if self.max_delay_seconds is None else min(float(self.max_delay_seconds), longest)

    def _scheduled_seconds(self, earlier_failures: float) -> float:
        try:
            return self.initial_delay_seconds * math.pow(self.multiplier, earlier_failures)
        except OverflowError:
            return math.inf


DEFAULT_RETRY = ExponentialRetry(
    initial_delay_seconds=1.0, multiplier=2.0, max_delay_seconds=300.0, max_attempts=10, jitter_factor=0.2
)
"""What a subscriber without a `retry_strategy` uses."""


def next_delay(
    strategy: object,
    *,
    now: datetime,
    first_attempt_at: datetime,
    last_attempt_at: datetime,
    attempts_count: int,
    exception: BaseException | None,
) -> float | None:
    """Seconds from `now` until the next run, or None to give the message up; called after each failure.

    `now` and `last_attempt_at` are read from one clock. A negative delay or a past time is 0, and what
    exceeds `LONGEST_DELAY_SECONDS` is cut to it. What the strategy itself raises passes through.
    """
    check_strategy(strategy)
    name = "get_next_attempt_at"
    inherited = getattr(type(strategy), name, None) is _Strategy.get_next_attempt_at
    if inherited or not callable(getattr(strategy, name, None)):
        name = "get_next_attempt_delay"
    ask: Callable[..., object] = getattr(strategy, name)
    answer = ask(
        first_attempt_at=first_attempt_at,
        last_attempt_at=last_attempt_at,
        attempts_count=attempts_count,
        exception=exception,
    )
    if answer is None:
        return None
    source = f"The result of {type(strategy).__name__}.{name}"
    if name == "get_next_attempt_at":
        answer = (in_utc(answer, source) - in_utc(now, "now")).total_seconds()
    return bounded_seconds(answer, source)


def check_strategy(strategy: object) -> None:
    """Refuse what `next_delay` could not ask; called when a subscriber is registered."""
    names = ("get_next_attempt_delay", "get_next_attempt_at")
    if isinstance(strategy, type) or not any(callable(getattr(strategy, name, None)) for name in names):
        msg = f"retry_strategy={strategy!r} cannot work: pass a strategy object, such as NoRetry()."
        raise InvalidOption(msg)

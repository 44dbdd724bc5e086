"""How a group reads: names, defaults and what cannot work. Checked when they are made, before anything is read."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from faststream_outbox._internal.options import check_choice, check_count, check_seconds
from faststream_outbox._internal.outcomes.retry import DEFAULT_RETRY, check_strategy
from faststream_outbox.errors import InvalidOption, InvalidOptionType

OnParked = Literal["skip", "hold_key"]
Start = Literal["earliest", "latest"] | datetime
"""Where a group begins that has never read; a time is that at which messages became readable."""
MAX_DEFERRED = 10_000


CRASH_LIMIT = 5
"""Each death costs a lease, during which the slots of the message stand still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a member of a group reads, and what it does with failures."""

    batch_size: int = 100
    lease_ttl_seconds: float = 15.0
    retry_strategy: object = field(default_factory=lambda: DEFAULT_RETRY)
    on_parked: OnParked = "skip"
    """Whether the next messages of a key wait for one that is parked (`hold_key`) or go on without it."""
    max_deferred: int = MAX_DEFERRED
    """How many messages may wait behind one of their key, before its slot stops."""
    start: Start = "earliest"
    """Where a group begins that has never read."""
    poll_interval: float = 1.0
    crash_limit: int = CRASH_LIMIT
    """How many processes in a row may die with one message, before it is parked."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_deferred"):
            check_count(name, getattr(self, name), most=1_000_000)
        check_count("crash_limit", self.crash_limit, most=10_000)
        for name in ("lease_ttl_seconds", "poll_interval"):
            check_seconds(name, getattr(self, name))
        check_choice("on_parked", self.on_parked, ("skip", "hold_key"))
        check_start(self.start)
        check_strategy(self.retry_strategy)


def check_start(start: object) -> None:
    """Refuse what is no place to start at."""
    if not isinstance(start, datetime):
        check_choice("start", start, ("earliest", "latest"))
    elif start.utcoffset() is None:
        msg = f"start must be an aware time, e.g. datetime.now(UTC): {start!r} is naive."
        raise InvalidOption(msg)


def checked_share(index: object, count: object, what: str) -> tuple[int, int]:
    """Which of how many static shares of the slots, or an error that names `what`."""
    if not isinstance(index, int) or not isinstance(count, int) or isinstance(index, bool) or isinstance(count, bool):
        msg = f"{what} must be ints, not {index!r} and {count!r}."
        raise InvalidOptionType(msg)
    if not 1 <= count <= 256:
        msg = f"{what}: there can be 1 to 256 shares, not {count}; there are 256 slots."
        raise InvalidOption(msg)
    if not 0 <= index < count:
        msg = f"{what}: {index} is not one of 0 to {count - 1}."
        raise InvalidOption(msg)
    return index, count

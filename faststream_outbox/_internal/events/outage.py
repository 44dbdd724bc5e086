"""Failures in a row of one kind of statement: when it may be tried again, and what is reported.

Each kind has its own, so that what works does not hide what fails. Reported when it begins, again after ever longer
times while it lasts, and once when it ends. Several may share one: it ends when the last of them works again. Metrics
count every try that failed; the log would fill up with them, so `Repeats` knows what was said already. Bookkeeping on
given times. Used by the loops of the queue, the log and the wake-ups, and by the event log.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from random import random

from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.types import StatementFailed, StatementWorks
from faststream_outbox._internal.service import pause_after

FIRST_SILENCE = 30.0
LONGEST_SILENCE = 3600.0
SLACK = 0.5
"""Who tells after the same silences by a clock of its own may be a moment early."""
OVER_SECONDS = 150.0
"""What was not heard of for so long is over, also if nobody said so: tries are never that far apart."""
MOST_KINDS = 8
"""After so many kinds of errors of one outage a further one is no news: perhaps each has a number in it."""


@dataclass(slots=True)
class _Said:
    since: float
    say_at: float
    silence: float
    heard_at: float
    kinds: set[Hashable] = field(default_factory=set)


class Repeats:
    """When each kind of line was said last."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[Hashable, _Said] = {}

    def is_news(self, what: Hashable, kind: Hashable, now: float) -> bool:
        """Whether to say it: it is new, it fails in another way than before, or it is time to say it again."""
        said = self._said.get(what)
        if said is None or now - said.heard_at >= OVER_SECONDS:
            self._said[what] = _Said(now, now + FIRST_SILENCE, FIRST_SILENCE, now, {kind})
            return True
        said.heard_at = now
        if kind not in said.kinds and len(said.kinds) < MOST_KINDS:
            said.kinds.add(kind)
            return True
        if now < said.say_at - SLACK:
            return False
        said.silence = min(2 * said.silence, LONGEST_SILENCE)
        said.say_at = now + said.silence
        return True

    def over(self, what: Hashable, now: float) -> float | None:
        """It works again, so the next time is news: for how long it did not; None if nothing was said of that."""
        said = self._said.pop(what, None)
        return None if said is None else now - said.since


class Outage:
    """Whether statements of one kind fail, since when, and until when to leave them.

    tells_each: report every failure, where each has a meaning of its own; the event log repeats none of them at once.
    """

    __slots__ = ("_events", "_failing", "_failures", "_say_at", "_silence", "_tells_each", "retry_at", "role", "since")

    def __init__(self, role: str, events: Events, *, tells_each: bool = False) -> None:
        self.role: str = role
        self._events = events
        self._tells_each = tells_each
        self._failing: set[Hashable] = set()
        self._failures = 0
        self._silence = FIRST_SILENCE
        self._say_at = 0.0
        self.since: float | None = None
        """When it began; None while all is well."""
        self.retry_at: float = 0.0
        """The next try is not before this."""

    def failed(self, error: Exception, now: float, who: Hashable = None) -> None:
        """One failed, for somebody; the pause before the next grows."""
        self._failures += 1
        self._failing.add(who)
        self.retry_at = now + pause_after(self._failures, random())
        is_new = self.since is None
        if is_new:
            self.since = now
        if is_new or now >= self._say_at:
            self._silence = FIRST_SILENCE if is_new else min(2 * self._silence, LONGEST_SILENCE)
            self._say_at = now + self._silence
        elif not self._tells_each:
            return
        self._events.emit(StatementFailed(self.role, error))

    def worked(self, now: float, who: Hashable = None) -> None:
        """One worked, for somebody."""
        if self.since is not None and self._end(who):
            since, self.since = self.since, None
            self._events.emit(StatementWorks(self.role, now - since))

    def left(self, who: Hashable) -> None:
        """Somebody tries no more; whether it would have worked is not known."""
        if self.since is not None and self._end(who):
            self.since = None

    def _end(self, who: Hashable) -> bool:
        """Whether nobody fails any more."""
        self._failing.discard(who)
        if self._failing:
            return False
        self._failures, self.retry_at = 0, 0.0
        return True

    def holds(self, now: float) -> bool:
        """Whether it is too early for another try."""
        return now < self.retry_at

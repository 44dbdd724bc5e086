"""Failures in a row of one kind of statement: when it may be tried again, and what is reported.

Each kind has its own, so that what works does not hide what fails. Reported when it begins, again after ever longer
times while it lasts, and once when it ends. Several may share one: it ends when the last of them works again. Used by
the loops of the queue, the log and the wake-ups.
"""

from collections.abc import Hashable
from random import random

from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.repeats import FIRST_SILENCE, LONGEST_SILENCE
from faststream_outbox._internal.events.types import ConnectionLost, ConnectionRestored
from faststream_outbox._internal.service import pause_after


class Outage:
    """Whether statements of one kind fail, since when, and until when to leave them.

    tells_each: report every failure, where each has a meaning of its own; the event log repeats none of them at once.
    """

    __slots__ = ("_events", "_failing", "_failures", "_say_at", "_silence", "_tells_each", "retry_at", "role", "since")

    def __init__(self, role: str, events: Events, *, tells_each: bool = False) -> None:
        self.role = role
        self._events = events
        self._tells_each = tells_each
        self._failing: set[Hashable] = set()
        self._failures = 0
        self._silence = FIRST_SILENCE
        self._say_at = 0.0
        self.since: float | None = None
        """When it began; None while all is well."""
        self.retry_at = 0.0
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
        self._events.emit(ConnectionLost(self.role, error))

    def worked(self, now: float, who: Hashable = None) -> None:
        """One worked, for somebody."""
        if self.since is not None and self._end(who):
            since, self.since = self.since, None
            self._events.emit(ConnectionRestored(self.role, now - since))

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

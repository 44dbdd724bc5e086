"""Failures in a row of one kind of statement: when it may be tried again, and what is told of it.

Each kind has its own, so that what works does not hide what fails. Told once when it begins and once
when it ends. Used by `claimer` and `scanner`.
"""

from faststream_outbox.events import Events
from faststream_outbox.events.table import ConnectionLost, ConnectionRestored
from faststream_outbox.service import pause_after


class Outage:
    """Whether statements of one kind fail, since when, and until when to leave them."""

    __slots__ = ("_events", "_failures", "_since", "retry_at", "role")

    def __init__(self, role: str, events: Events) -> None:
        self.role = role
        self._events = events
        self._failures = 0
        self._since = 0.0
        self.retry_at = 0.0
        """The next try is not before this."""

    def failed(self, error: Exception, now: float) -> None:
        """One failed; the pause before the next grows."""
        self._failures += 1
        self.retry_at = now + pause_after(self._failures)
        if self._failures == 1:
            self._since = now
            self._events.emit(ConnectionLost(self.role, error))

    def worked(self, now: float) -> None:
        """One worked."""
        if self._failures:
            self._failures, self.retry_at = 0, 0.0
            self._events.emit(ConnectionRestored(self.role, now - self._since))

    def holds(self, now: float) -> bool:
        """Whether it is too early for another try."""
        return now < self.retry_at

"""The clock of tables in memory, and the moments that are no times of a clock.

Shared by all tables of a test, so that time passes for all of them at once.
"""

from datetime import UTC, datetime, timedelta

FAR = datetime(9998, 12, 31, tzinfo=UTC)
"""The latest time that is shown."""
NEVER = datetime.max.replace(tzinfo=UTC)
"""Infinity: when a pause or a parked message falls due."""


class MemoryClock:
    """The server's clock, which can be advanced."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        """What time it is there."""
        return datetime.now(UTC) + self._ahead

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        self._ahead += by

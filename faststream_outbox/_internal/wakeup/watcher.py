"""Watches the id sequence, for messages whose commit nobody could see.

Bare connections, raw drivers and other languages send no hint. Reading the sequence's last value
touches no table and takes a tenth of a millisecond, so one watcher per process reads it every few
milliseconds while ids are drawn that no hint explains, and seldom when not. Ids that hints have accounted for need
no watching. An id is drawn when a row is inserted, and the row appears at commit: so after each
movement the claimer is woken a few times, at growing distances. Where LISTEN works and everybody who published
lately has sent hints, an idle sequence is read only twice a second. Runs as a service of the client.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from faststream_outbox._internal.service import Pulse, retrying

IDLE_INTERVAL = 0.05
SLEEPY_INTERVAL = 0.1
SLEEPY_SECONDS = 30.0
QUIET_INTERVAL = 0.5
STRANGER_SECONDS = 600.0
"""For so long after ids that no hint ever explained, somebody is believed to publish without hints."""
BUSY_INTERVAL = 0.008
FIRST_WAKE = 0.002
LONGEST_WAKE = 0.025
WAKING_SECONDS = 1.0
"""For so long after a movement the claimer is woken."""
MOST_AHEAD = 10_000
"""Hints may overtake the reading that they explain, and may be wrong: by no more than this."""


@dataclass(slots=True)
class SequenceTracker:
    """What is known of the sequence: pure bookkeeping of ids drawn, ids accounted for, and wake-ups due."""

    last: int | None = None
    unaccounted: int = 0
    moved_at: float = float("-inf")
    stranger_at: float = float("-inf")
    """When ids were last given up that no hint had explained."""
    wake_at: float = field(default=float("inf"))
    distance: float = FIRST_WAKE
    forgotten: int = 0
    """Up to this id nothing is waited for any more: whoever explains one of them explains no other."""

    def account(self, count: int, last_id: int) -> None:
        """Hints have come for so many committed messages, none with an id above `last_id`."""
        # Before the first reading they are of ids that it will find drawn.
        if self.last is not None and last_id > self.forgotten:
            self.unaccounted = max(self.unaccounted - count, -MOST_AHEAD)

    def read(self, value: int | None, now: float) -> bool:
        """Take a reading; whether the claimer should be woken now."""
        value = value or 0
        if self.last is None:
            # What appeared before is known to nobody: the first scan may have been over by then.
            self.last = self.forgotten = value
            return True
        drawn = value - self.last
        if drawn < 0:
            # The sequence was restarted.
            self.unaccounted, drawn, self.forgotten = 0, value, 0
        self.last = value
        if drawn != 0:
            self.unaccounted += drawn
            self.moved_at, self.distance = now, FIRST_WAKE
            self.wake_at = now
        if self.unaccounted > 0 and now - self.moved_at > WAKING_SECONDS:
            self.stranger_at = now
        if self.unaccounted <= 0 or now - self.moved_at > WAKING_SECONDS:
            # Accounts may drift, by rollbacks or by strangers: they start afresh.
            self.unaccounted = min(self.unaccounted, 0)
            if now - self.moved_at > WAKING_SECONDS:
                self.unaccounted, self.forgotten = 0, value
            self.wake_at = float("inf")
            return False
        if now < self.wake_at:
            return False
        self.wake_at = now + self.distance
        self.distance = min(self.distance * 2, LONGEST_WAKE)
        return True

    def pause(self, now: float, *, hears: bool = False) -> float:
        """Seconds until the next reading; `hears` says that hints of other processes arrive."""
        if now - self.moved_at > SLEEPY_SECONDS:
            return QUIET_INTERVAL if hears and now - self.stranger_at > STRANGER_SECONDS else SLEEPY_INTERVAL
        if self.unaccounted <= 0 or now - self.moved_at > WAKING_SECONDS:
            return IDLE_INTERVAL
        return min(BUSY_INTERVAL, max(FIRST_WAKE, self.wake_at - now))


class Watcher:
    """Reads the sequence through `read` and calls `wake` when there may be messages without a hint."""

    def __init__(
        self,
        read: Callable[[], Awaitable[int | None]],
        wake: Callable[[], None],
        failed: Callable[[Exception], None],
        worked: Callable[[], None] = lambda: None,
        hears: Callable[[], bool] = lambda: False,
    ) -> None:
        self._read = read
        self._wake_claimer = wake
        self._failed = failed
        self._worked = worked
        self._hears = hears
        self.tracker = SequenceTracker()
        self.pulse = Pulse()

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            value = await retrying(self._read, self._not_read)
            self._worked()
            self.pulse.beat()
            now = loop.time()
            if self.tracker.read(value, now):
                self._wake_claimer()
            await asyncio.sleep(self.tracker.pause(now, hears=self._hears()))

    def _not_read(self, error: Exception, failures: int) -> None:
        self.pulse.beat()
        self._failed(error)

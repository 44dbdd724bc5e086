"""Watches the id sequence, for messages whose commit nobody could see.

Bare connections, raw drivers and other languages send no hint. Reading the sequence's last value
touches no table and takes a tenth of a millisecond, so one watcher per process reads it every few
milliseconds while ids are drawn that no hint explains, and seldom when not. Ids that hints have accounted for need
no watching. An id is drawn when a row is inserted, and the row appears at commit: so after each
movement the claimers are woken a few times, at growing distances. Where LISTEN hears and everybody who published of
late has told of it, an idle sequence is read twice a second only.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from faststream_outbox.service import pause_after

IDLE_INTERVAL = 0.05
SLEEPY_INTERVAL = 0.1
SLEEPY_SECONDS = 30.0
QUIET_INTERVAL = 0.5
STRANGER_SECONDS = 600.0
"""For so long after ids that no hint ever explained, somebody is believed to publish without telling."""
BUSY_INTERVAL = 0.008
FIRST_POKE = 0.002
LONGEST_POKE = 0.025
POKING_SECONDS = 1.0
MOST_AHEAD = 10_000
"""Hints may overtake the reading that they explain, and they may lie: by no more than this."""


@dataclass(slots=True)
class Tide:
    """What is known of the sequence: pure bookkeeping of ids drawn, ids accounted for, and pokes due."""

    last: int | None = None
    unaccounted: int = 0
    moved_at: float = float("-inf")
    stranger_at: float = float("-inf")
    """When ids were last given up that no hint had explained."""
    poke_at: float = field(default=float("inf"))
    distance: float = FIRST_POKE

    def account(self, count: int) -> None:
        """Hints have told of so many committed messages."""
        self.unaccounted = max(self.unaccounted - count, -MOST_AHEAD)

    def read(self, value: int | None, now: float) -> bool:
        """Take a reading; whether the claimers should be woken now."""
        value = value or 0
        drawn = 0 if self.last is None else value - self.last
        if drawn < 0:
            # The sequence was restarted.
            self.unaccounted, drawn = 0, value
        self.last = value
        if drawn != 0:
            self.unaccounted += drawn
            self.moved_at, self.distance = now, FIRST_POKE
            self.poke_at = now
        if self.unaccounted > 0 and now - self.moved_at > POKING_SECONDS:
            self.stranger_at = now
        if self.unaccounted <= 0 or now - self.moved_at > POKING_SECONDS:
            # Accounts may drift, by rollbacks or by hints that overtake a reading: they start afresh.
            self.unaccounted = min(self.unaccounted, 0) if now - self.moved_at <= POKING_SECONDS else 0
            self.poke_at = float("inf")
            return False
        if now < self.poke_at:
            return False
        self.poke_at = now + self.distance
        self.distance = min(self.distance * 2, LONGEST_POKE)
        return True

    def pause(self, now: float, *, hears: bool = False) -> float:
        """Seconds until the next reading; `hears` says that hints of other processes arrive."""
        if now - self.moved_at > SLEEPY_SECONDS:
            return QUIET_INTERVAL if hears and now - self.stranger_at > STRANGER_SECONDS else SLEEPY_INTERVAL
        if self.unaccounted <= 0 or now - self.moved_at > POKING_SECONDS:
            return IDLE_INTERVAL
        return min(BUSY_INTERVAL, max(FIRST_POKE, self.poke_at - now))


class Watcher:
    """Reads the sequence through `read` and calls `poke` when there may be messages without a hint."""

    def __init__(
        self,
        read: Callable[[], Awaitable[int | None]],
        poke: Callable[[], None],
        failed: Callable[[Exception], None],
        hears: Callable[[], bool] = lambda: False,
    ) -> None:
        self._read = read
        self._poke = poke
        self._failed = failed
        self._hears = hears
        self.tide = Tide()

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            try:
                value = await self._read()
            except Exception as error:  # noqa: BLE001 - told, and tried again
                failures += 1
                if failures == 1:
                    self._failed(error)
                await asyncio.sleep(pause_after(failures))
                continue
            failures = 0
            now = loop.time()
            if self.tide.read(value, now):
                self._poke()
            await asyncio.sleep(self.tide.pause(now, hears=self._hears()))

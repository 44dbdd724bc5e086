"""A count of what is handled: when each tenth was, and whether all is done.

The questions of `course` make one for each measurement, and the consumer calls it.
"""

import asyncio
import time


class Count:
    """Counts what is handled, notes the time of each tenth, and tells when all is done."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.handled = 0
        self.done = asyncio.Event()
        self.tenth = max(1, messages // 10)
        self.times: list[float] = []

    def __call__(self, body: object) -> None:
        """A message was handled."""
        self.handled += 1
        if self.handled % self.tenth == 0:
            self.times.append(time.perf_counter())
            if self.handled >= self.messages:
                self.done.set()

    def many(self, count: int) -> None:
        """So many were handled at once."""
        before = self.handled // self.tenth
        self.handled += count
        self.times += [time.perf_counter()] * (self.handled // self.tenth - before)
        if self.handled >= self.messages:
            self.done.set()

    @property
    def decay(self) -> float:
        """How much longer the last tenth took than the first."""
        first, last = self.times[1] - self.times[0], self.times[-1] - self.times[-2]
        # A batch may hold more than a tenth.
        return last / first if first and last else 1.0

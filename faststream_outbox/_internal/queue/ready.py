"""Claimed messages that wait for a handler, and the handlers that wait for messages.

Messages of one key stay together as a run, because no two executors may have some of them. Used by `worker`
(which puts) and `executor` (which takes).
"""

import asyncio
from collections import deque
from time import monotonic

from faststream_outbox._internal.queue.claim import Claim


class Ready:
    """A line of messages and runs of messages."""

    def __init__(self) -> None:
        self.count = 0
        """Messages in the line."""
        self.moved_at = 0.0
        """When one was last taken, or came while there was none, on the clock of `monotonic`."""
        self._line: deque[Claim | list[Claim]] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()

    def put(self, claims: list[Claim]) -> None:
        """Add messages, each for whoever is free."""
        if not self.count:
            self.moved_at = monotonic()
        self._line.extend(claims)
        self.count += len(claims)
        self._rouse(len(claims))

    def put_run(self, run: list[Claim]) -> None:
        """Add messages of one key, for one executor."""
        if not self.count:
            self.moved_at = monotonic()
        self._line.append(run)
        self.count += len(run)
        self._rouse(1)

    def clear(self) -> list[Claim]:
        """Take all out."""
        left = [claim for item in self._line for claim in _as_run(item)]
        self._line.clear()
        self.count = 0
        return left

    async def take(self) -> list[Claim]:
        """The next message or run, when there is one."""
        while not self._line:
            await self.wait(None)
        run = _as_run(self._line.popleft())
        self.moved_at = monotonic()
        self.count -= len(run)
        return run

    def take_more(self, most: int) -> list[Claim]:
        """What stands in front, up to so many messages; a run stays whole, as its key must not be in two executors."""
        taken: list[Claim] = []
        line = self._line
        while line and len(taken) < most:
            run = _as_run(line[0])
            if len(taken) + len(run) > most:
                break
            taken += run
            line.popleft()
        if taken:
            self.moved_at = monotonic()
            self.count -= len(taken)
        return taken

    async def wait(self, timeout: float | None) -> None:
        """Wait for a message to come, or for the time to pass."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            if timeout is None:
                await waiter
            else:
                await asyncio.wait([waiter], timeout=timeout)
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._rouse(1)
            raise
        finally:
            # One that nobody waits for must not swallow the call for the next message.
            waiter.cancel()

    def _rouse(self, count: int) -> None:
        while self._idle and count:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1


def _as_run(item: Claim | list[Claim]) -> list[Claim]:
    return [item] if isinstance(item, Claim) else item

"""The circuit of one transport: while a broker does not answer, one batch tries at a time, with growing pauses.

All batches of a relay go through it, so a broker that is down is asked once in a while and not by all that wait. It
reports that the broker is down, again after ever longer times while it is, and once that it answers again. Used by
`line`.
"""

import asyncio
from collections.abc import Callable
from random import random

from faststream_outbox._internal.events.outage import FIRST_SILENCE, LONGEST_SILENCE
from faststream_outbox._internal.service import pause_after

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 15.0


class Circuit:
    """Open while the broker does not answer."""

    def __init__(self, down: Callable[[BaseException], None], up: Callable[[float], None]) -> None:
        self._down = down
        self._up = up
        self._failures = 0
        self._since = 0.0
        self._try_at = 0.0
        self._is_trying = False
        self._say_at = 0.0
        self._silence = 0.0
        self._waiting: set[asyncio.Future[None]] = set()
        self.is_over = False
        """Whether nobody is to wait any more: the relay stops."""
        self.error: BaseException | None = None
        """Why the broker is down; None while it answers."""

    @property
    def is_closed(self) -> bool:
        """Whether the broker answers, as far as is known."""
        return self.error is None

    @property
    def pause(self) -> float:
        """Seconds until the next try."""
        return max(0.0, self._try_at - asyncio.get_running_loop().time())

    async def enter(self) -> bool:
        """Wait until a try may be made; False if the relay stops before."""
        while not self.is_closed and not self.is_over:
            pause = self.pause
            if not self._is_trying and not pause:
                self._is_trying = True
                break
            await self._changed(None if self._is_trying else pause)
        return not self.is_over

    async def _changed(self, timeout: float | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=timeout)
        finally:
            self._waiting.discard(waiter)

    def answered(self) -> None:
        """The broker took or refused something."""
        if self.error is not None:
            self.error = None
            self._up(asyncio.get_running_loop().time() - self._since)
        self._failures = 0
        self._settle()

    def failed(self, error: BaseException) -> None:
        """The broker did not answer."""
        if self.error is not None and not self._is_trying:
            # It was sent before the others knew.
            return
        now = asyncio.get_running_loop().time()
        self._failures += 1
        self._try_at = now + pause_after(self._failures, random(), first=FIRST_PAUSE, longest=LONGEST_PAUSE)
        if self.error is None:
            self._begin(error)
        elif now >= self._say_at:
            self._silence = min(2 * self._silence, LONGEST_SILENCE)
            self._say_at = now + self._silence
            self._down(error)
        self._settle()

    def _begin(self, error: BaseException) -> None:
        self._since = asyncio.get_running_loop().time()
        self.error = error
        self._silence = FIRST_SILENCE
        self._say_at = self._since + self._silence
        self._down(error)

    def suspect(self, error: BaseException) -> None:
        """The broker has not answered for long; whoever asks goes on waiting, and others do not begin."""
        if self.error is None:
            self._is_trying = True
            self._begin(error)

    def left(self) -> None:
        """Whoever tried has gone without an answer."""
        self._settle()

    def end(self) -> None:
        """Let nobody wait any more."""
        self.is_over = True
        self._settle()

    def begin(self) -> None:
        """Start over, as a relay does that starts again; maybe in another event loop."""
        self.is_over = self._is_trying = False
        self._failures, self._try_at, self.error = 0, 0.0, None
        self._waiting = set()

    def _settle(self) -> None:
        self._is_trying = False
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

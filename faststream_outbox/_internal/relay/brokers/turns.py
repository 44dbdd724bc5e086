"""Who may publish at the same time: many together, or one alone.

An error of one message may fail all that are under way on the same channel. Whose it was is known only of a message
that was alone there. Used by `rabbit`; belongs to one event loop.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Turns:
    """Lets many run together until one must be alone; who comes meanwhile waits."""

    def __init__(self) -> None:
        self._gate = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def together(self) -> AsyncGenerator[None]:
        """Run beside others."""
        async with self._gate:
            self._running += 1
            self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Run after all who run now, and before all who come later."""
        async with self._gate:
            await self._idle.wait()
            yield

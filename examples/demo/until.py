"""Waiting for what other processes write: there is no event to wait for."""

import asyncio
from collections.abc import Awaitable, Callable


async def until(question: Callable[[], Awaitable[bool]]) -> None:
    """Ask until the answer is yes."""
    while True:
        if await question():
            return
        await asyncio.sleep(0.05)

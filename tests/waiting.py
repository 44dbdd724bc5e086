"""Waiting for what sends no event: a row, a process, a file."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from time import monotonic, sleep
from typing import Any

import pytest

PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.05
"""Asking costs whoever is waited for: pauses grow to a tenth of what was waited already, up to this."""

PROGRESS_PAUSE_SECONDS = 0.1
"""Between two counts of what is left: counting costs whoever works on it."""

PATIENCE_SECONDS = 30.0
"""Far longer than anything should take: only what does not happen at all, or on a machine that stands still, does."""


async def eventually(
    predicate: Callable[[], Any] | Callable[[], Awaitable[Any]],
    timeout: float = PATIENCE_SECONDS,
    message: str | None = None,
) -> Any:
    """Asks until the answer is true, and gives that answer; fails the test when `timeout` has passed."""
    __tracebackhide__ = True
    loop = asyncio.get_running_loop()
    began = loop.time()
    while True:
        answer = predicate()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        waited = loop.time() - began
        if waited > timeout:
            what = message or inspect.getdoc(predicate) or getattr(predicate, "__qualname__", repr(predicate))
            pytest.fail(f"still not so after {timeout} s: {what} (last answer: {answer!r})")
        await asyncio.sleep(min(max(PAUSE_SECONDS, waited / 10), LONGEST_PAUSE_SECONDS))


def eventually_sync(predicate: Callable[[], bool], timeout: float = PATIENCE_SECONDS, message: str = "") -> None:
    """The same where no event loop runs, such as between commands that bring their own."""
    __tracebackhide__ = True
    deadline = monotonic() + timeout
    while not predicate():
        if monotonic() > deadline:
            pytest.fail(f"still not so after {timeout} s: {message or predicate}")
        sleep(PROGRESS_PAUSE_SECONDS)


async def progresses(
    left: Callable[[], Awaitable[int]], until: int, standstill: float = PATIENCE_SECONDS, message: str = "left"
) -> None:
    """Wait until no more than so many are left, however long it takes; fails if they get no fewer for `standstill`."""
    __tracebackhide__ = True
    loop = asyncio.get_running_loop()
    fewest = await left()
    moved_at = loop.time()
    while (now := await left()) > until:
        if now < fewest:
            fewest, moved_at = now, loop.time()
        elif loop.time() - moved_at > standstill:
            pytest.fail(f"no progress for {standstill:g} s: {now} {message}, and no more than {until} were expected")
        await asyncio.sleep(PROGRESS_PAUSE_SECONDS)

"""The start/stop contract of everything that runs in the background.

`start` twice is once, `stop` before `start` does nothing, `stop` awaits what it ends, and a loop
that crashes is started again with a growing pause and says so. Subclasses write `_loop` (one task's
whole life); owners call `start` and `stop` and nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
PATIENCE = 3.0
"""Seconds that work which must not be interrupted may still take after a cancellation."""


def pause_after(failures: int) -> float:
    """Seconds to wait after so many failures in a row: 0.05, 0.1, 0.2 … 5."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures - 1, 10))


async def unbroken(work: Coroutine[Any, Any, T], again: Callable[[], Coroutine[Any, Any, T]] | None = None) -> T:
    """Let work come to its end although this task is cancelled meanwhile; the cancellation is raised afterwards.

    After a cancellation it has `PATIENCE` left: a server that does not answer must not stop anybody from stopping.
    The end of the event loop cancels the work itself: then it is done `again`, where that does no harm.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        until = asyncio.get_running_loop().time() + PATIENCE
        await _ended(task, until)
        if task.cancelled() and again is not None:
            task = asyncio.ensure_future(again())
            await _ended(task, until)
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        raise cancelled from (None if task.cancelled() else task.exception())


async def _ended(task: asyncio.Task[Any], until: float) -> None:
    """Wait for a task until that time, however often this one is cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    while not task.done() and (left := until - loop.time()) > 0:
        try:
            await asyncio.wait([task], timeout=left)
        except asyncio.CancelledError:
            continue


class Service:
    """One background task that outlives its own crashes."""

    def __init__(
        self, name: str, loop: Callable[[], Awaitable[None]], crashed: Callable[[str, BaseException], None]
    ) -> None:
        self.name = name
        self._run = loop
        self._crashed = crashed
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the task exists and has not ended."""
        return self._task is not None and not self._task.done()

    @property
    def is_current(self) -> bool:
        """Whether this is called from the task itself."""
        return self._task is not None and self._task is asyncio.current_task()

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody is ending the task from outside."""
        return self._task is not None and self._task.cancelling() > 0

    def start(self) -> None:
        """Begin, unless already running."""
        if not self.is_running:
            self._task = asyncio.get_running_loop().create_task(self._supervise(), name=self.name)

    async def stop(self) -> None:
        """End the task and wait until it is gone."""
        task, self._task = self._task, None
        if task is None:
            return
        if task is asyncio.current_task():
            self._task = task
            msg = f"{self.name} cannot be stopped from its own task."
            raise RuntimeError(msg)
        task.cancel()
        await asyncio.wait([task])

    async def _supervise(self) -> None:
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._run()
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                failures = 1 if loop.time() - began > LONGEST_PAUSE else failures + 1
                self._crashed(self.name, error)
                await asyncio.sleep(pause_after(failures))
            else:
                return

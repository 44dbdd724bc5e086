"""The start/stop contract of everything that runs in the background.

`start` twice is once, `stop` before `start` does nothing, `stop` awaits what it ends, and a loop
that crashes is started again with a growing pause and says so. A `Service` is given its loop, one task's
whole life; owners call `start` and `stop` and nothing else. `retrying` is how a loop tries again what failed, `called`
how it waits for its next turn, `until` how it waits for what nobody announces. A `Pulse` is how it shows that it moves
on, so that one which hangs does not look like one which has nothing to do.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from random import random
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0
PATIENCE = 3.0
"""Seconds that work which must not be interrupted may still take after a cancellation."""

STUCK_SECONDS = 150.0
"""A step of a loop takes no longer: it waits for its turn on a shared connection, opens it, and runs a statement."""


def pause_after(
    failures: int, chance: float = 1.0, *, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE
) -> float:
    """Seconds to wait after so many failures in a row: 0.05, 0.1, 0.2 … 5; half of it is by chance, of 0 to 1.

    Whoever asks a server that failed for everybody takes a chance, or all of a fleet ask again at the same moment.
    """
    return min(longest, first * 2.0 ** min(failures - 1, 10)) * (0.5 + 0.5 * chance)


async def retrying(
    work: Callable[[], Awaitable[T]],
    failed: Callable[[Exception, int], None],
    *,
    longest_pause: float = LONGEST_PAUSE,
) -> T:
    """Await `work` until it succeeds, with growing pauses between its failures.

    `failed` is called with each, and with how many there were in a row by then; what it raises ends the trying.
    """
    failures = 0
    while True:
        try:
            return await work()
        except Exception as error:  # noqa: BLE001 - reported, and tried again
            failures += 1
            failed(error, failures)
            await asyncio.sleep(min(longest_pause, pause_after(failures, random())))


async def called(event: asyncio.Event, until: float) -> bool:
    """Wait until the event is set, or the loop's clock is there; whether it was set. It is not cleared.

    For ever where the time is `inf`. A time that has passed looks at the event alone, and lets others have a turn.
    """
    try:
        async with asyncio.timeout_at(None if until == inf else until):
            await event.wait()
    except TimeoutError:
        # Set in the moment in which the time came, it was set.
        return event.is_set()
    return True


async def until(is_so: Callable[[], bool], seconds: float, is_over: Callable[[], bool], pause: float) -> bool:
    """Ask again and again whether it is so, for so many seconds and until it is over; whether it is."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not is_so():
        if is_over() or loop.time() > end:
            return False
        await asyncio.sleep(pause)
    return True


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


class Pulse:
    """Whether a loop moves on: it beats with each step, and rests while it waits for work."""

    __slots__ = ("_beat_at", "_late_at", "_limit", "beats")

    def __init__(self, limit: float = STUCK_SECONDS) -> None:
        self._limit = limit
        self._beat_at = monotonic()
        self._late_at = float("inf")
        self.beats: int = 0
        """How often it has beaten: one that is late and beats meanwhile is not stuck."""

    def beat(self) -> None:
        """A step has ended, and another begins."""
        self.beats += 1
        self._beat_at = monotonic()
        self._late_at = self._beat_at + self._limit

    def rest(self, seconds: float = float("inf")) -> None:
        """There is nothing to do, for so long or until somebody calls."""
        self.beat()
        self._late_at += seconds

    def stuck_for(self, now: float) -> float:
        """Seconds since it moved on, on the clock of `monotonic`, if it should have done so by now; else 0."""
        return now - self._beat_at if now > self._late_at else 0.0


class Service:
    """One background task that outlives its own crashes."""

    def __init__(
        self,
        name: str,
        loop: Callable[[], Awaitable[None]],
        crashed: Callable[[str, BaseException], None],
        restored: Callable[[str, float], None] = lambda _name, _seconds: None,
        pulse: Pulse | None = None,
    ) -> None:
        self.name = name
        self._run = loop
        self._crashed = crashed
        self._restored = restored
        self.pulse = pulse
        """Beaten by the loop; None where steps may take as long as they like."""
        self._crashed_at: float | None = None
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
            if self.pulse is not None:
                self.pulse.beat()
            watching = None if self._crashed_at is None else loop.call_later(LONGEST_PAUSE, self._runs_again)
            try:
                await self._run()
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if watching is not None:
                    watching.cancel()
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                failures = 1 if loop.time() - began > LONGEST_PAUSE else failures + 1
                self._crashed_at = loop.time() if self._crashed_at is None else self._crashed_at
                self._crashed(self.name, error)
                await asyncio.sleep(pause_after(failures))
            else:
                if watching is not None:
                    watching.cancel()
                return

    def _runs_again(self) -> None:
        """It has run for longer than any pause after a crash."""
        if self._crashed_at is not None:
            seconds, self._crashed_at = asyncio.get_running_loop().time() - self._crashed_at, None
            self._restored(self.name, seconds)

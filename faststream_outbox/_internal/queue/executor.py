"""An executor: takes what is ready, attempts it, hands on the outcome, and again.

Messages of one key are handled one after the other; after one that failed the rest of the run is given back, so that
order holds, also where its failure cannot be written in time. An error that nobody foresaw costs the message in flight,
not the loop. A worker has `max_workers` of them, and one `Ready`: the line of claimed messages that wait for a handler,
and of handlers that wait for messages. There messages of one key stay together as a run, because no two executors may
have some of them. Made by `worker`.
"""

import asyncio
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from faststream_outbox._internal import events
from faststream_outbox._internal.outcomes.failure import ENDING
from faststream_outbox._internal.outcomes.outcome import RELEASE, Dead, Done, FinalOutcome, Release, Retry, Settled
from faststream_outbox._internal.queue.attempt import attempt, attempt_batch
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.options import WorkerOptions

if TYPE_CHECKING:
    from faststream_outbox._internal.queue.worker import Worker


class Executor:
    """The loop of one handler."""

    def __init__(self, worker: "Worker", name: str, pause: float = 0.0) -> None:
        self._worker = worker
        self.name = name
        self._pause = pause
        self.is_ready = not pause
        """Whether it takes messages; not so while it recovers from a crash."""
        self.is_last = False
        """Whether what it handles now is the last: it outlived a stop."""
        self.began_at: float | None = None
        """Since when a handler runs, on the clock of `monotonic`; None while none does."""
        self.holds: list[Claim] = []
        """What it handles now, first to last."""

    async def run(self) -> None:
        """Handle until the worker stops, after the pause."""
        task = asyncio.current_task()
        assert task is not None
        worker = self._worker
        if self._pause:
            await asyncio.sleep(self._pause)
            self.is_ready = True
        while not (worker.is_stopping or self.is_last):
            try:
                if worker.options.batch:
                    await self._handle_batch(task)
                else:
                    await self._handle_run(await worker.next(), task)
            except ENDING:
                raise
            except BaseException as error:  # noqa: BLE001 - reported, and the loop goes on
                worker.events.emit(events.LoopCrashed(self.name, error))
                self.let_go()

    def let_go(self) -> None:
        """Give back what it holds: nobody goes on with it."""
        held, self.holds, self.began_at = self.holds, [], None
        for claim in held:
            if claim in self._worker.unsettled and not claim.is_ending:
                self._worker.settle(claim, Release(counts=claim.was_started))

    async def _handle_run(self, run: list[Claim], task: asyncio.Task[None]) -> None:
        worker = self._worker
        for place, claim in enumerate(run, start=1):
            self.holds, self.began_at = run, monotonic()
            outcome = await attempt(worker, claim, task)
            self.holds, self.began_at = [], None
            if outcome is not None:
                worker.settle(claim, outcome)
            if place < len(run) and (
                worker.is_stopping
                # Somebody else has it and handles it again: what follows must wait for that.
                or claim.is_lost
                # What follows would be done before this one is retried, or before it is known that this one is dead.
                or not isinstance(outcome, (Done, Settled))
            ):
                for later in run[place:]:
                    worker.settle(later, RELEASE)
                return

    async def _handle_batch(self, task: asyncio.Task[None]) -> None:
        worker = self._worker
        claims = list(await worker.next())
        try:
            await self._fill(claims)
        except asyncio.CancelledError:
            self._give_back(claims)
            raise
        if worker.is_stopping:
            self._give_back(claims)
            return
        self.holds, self.began_at = claims, monotonic()
        outcomes = await attempt_batch(worker, claims, task)
        self.holds, self.began_at = [], None
        held: set[tuple[str, str]] = set()
        for claim, outcome in zip(claims, outcomes, strict=True):
            if outcome is None:
                continue
            final = outcome
            if claim.key is not None:
                # A later message of a key that failed comes again after it, so that order holds; it is not to blame.
                final = RELEASE if (claim.queue, claim.key) in held else outcome
                if holds_key(final, worker.options):
                    held.add((claim.queue, claim.key))
            worker.settle(claim, final)

    async def _fill(self, claims: list[Claim]) -> None:
        """Add what is ready, and wait a while for more, up to the batch's size."""
        worker = self._worker
        loop = asyncio.get_running_loop()
        until = loop.time() + worker.options.batch_wait
        while (room := worker.options.most_per_call - len(claims)) > 0 and not worker.is_stopping:
            if more := worker.more(room):
                claims += more
            elif worker.ready.count or loop.time() >= until:
                return
            else:
                await worker.ready.wait(until - loop.time())

    def _give_back(self, claims: list[Claim]) -> None:
        for claim in claims:
            self._worker.settle(claim, RELEASE)


def holds_key(outcome: FinalOutcome, options: WorkerOptions) -> bool:
    """Whether later messages of the key must wait after this outcome."""
    match outcome:
        case Retry() | Release():
            return True
        case Dead():
            return options.on_dead == "block"
        case _:
            return False


class Ready:
    """A line of messages and runs of messages."""

    def __init__(self) -> None:
        self.count: int = 0
        """Messages in the line."""
        self.moved_at: float = 0.0
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

"""The worker: claims messages of its queues and runs a handler on each, N at a time.

A handler gets a `Claim` (or, with `batch`, a list of them) and returns an outcome. What it raises is a
failed attempt; what it does to itself (hang, cancel, outlive its lease) harms no other message.
`stop` lets what runs finish, gives back at once what has not started, and leaves nothing leased.
Built by the broker for each subscriber, or used directly.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.events import table as told
from faststream_outbox.queue.attempt import attempt, attempt_batch
from faststream_outbox.queue.claim import Claim
from faststream_outbox.queue.options import WorkerOptions, checked_queues
from faststream_outbox.queue.outcome import (
    RELEASE,
    Dead,
    FinalOutcome,
    Outcome,
    Release,
    Retry,
)

if TYPE_CHECKING:
    from faststream_outbox.queue.client import OutboxClient
    from faststream_outbox.queue.intake import Intake

Handle = Callable[[Claim], Awaitable[Outcome]]
HandleBatch = Callable[[Sequence[Claim]], Awaitable[Sequence[Outcome]]]

HOARD_SECONDS = 0.1
"""A worker keeps no more messages waiting than it handles in this time."""
MOST_UNSETTLED = 5000


class Worker:
    """Competes with all other workers for the messages of its queues."""

    def __init__(
        self,
        engine: AsyncEngine,
        table: Table,
        queues: str | list[str] | tuple[str, ...],
        handle: Handle | HandleBatch,
        *,
        dlq_table: Table | None = None,
        client: "OutboxClient | None" = None,
        name: str | None = None,
        options: WorkerOptions | None = None,
        **settings: Any,
    ) -> None:
        from faststream_outbox.queue.client import OutboxClient

        self.queues = checked_queues(queues)
        self.options = options or WorkerOptions(**settings)
        self.client = client or OutboxClient.shared(engine, table, dlq_table)
        self.client.check(self.options)
        self.name = name or ",".join(self.queues)
        self.handle: Any = handle
        self.is_stopping = False
        self._ready: deque[Claim | list[Claim]] = deque()
        self._waiting = 0
        self._running: dict[asyncio.Task[None], Sequence[Claim]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._free: deque[asyncio.Future[None]] = deque()
        self.unsettled: set[Claim] = set()
        self._all_settled = asyncio.Event()
        self._seconds: float | None = None
        self._intake: Intake | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it claims and handles."""
        return bool(self._tasks) and not self.is_stopping

    @property
    def running(self) -> int:
        """Handlers that run now."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Messages claimed and not started."""
        return self._waiting

    @property
    def room(self) -> int:
        """How many messages to claim now: as many as soon find a handler, never more than a batch."""
        options = self.options
        if self.is_stopping or len(self.unsettled) >= MOST_UNSETTLED:
            return 0
        batch = max(options.fetch_batch_size, options.most_per_call)
        if self._seconds is not None and self._seconds * batch / options.max_workers < HOARD_SECONDS:
            return batch if self._waiting < batch else 0
        idle = (options.max_workers - len(self._running)) * options.most_per_call
        return min(batch, max(0, idle - self._waiting))

    @property
    def longest_run(self) -> int:
        """How many messages of one key to claim at once: what a handler takes, where it takes several."""
        return self.options.most_per_call if self.options.batch else self.options.fetch_batch_size

    async def start(self) -> None:
        """Begin to claim and handle, unless already running; a stop under way ends first."""
        if self._stopping is not None and asyncio.current_task() not in self._tasks:
            await asyncio.shield(self._stopping)
        if self._tasks:
            return
        self.is_stopping = False
        loop = asyncio.get_running_loop()
        body = self._batches if self.options.batch else self._singles
        self._tasks = [
            loop.create_task(self._supervise(body), name=f"outbox {self.name} {number}")
            for number in range(self.options.max_workers)
        ]
        self._intake = await self.client.attach(self)

    async def stop(self, timeout: float | None = None) -> None:
        """Finish what runs, within `timeout` or `graceful_timeout`; give back the rest at once.

        Called from a handler of its own it returns at once, and the worker stops when that has ended.
        """
        if not self._tasks:
            return
        if self._stopping is None:
            self.is_stopping = True
            limit = self.options.graceful_timeout if timeout is None else timeout
            self._stopping = asyncio.get_running_loop().create_task(self._stop(limit), name=f"stop {self.name}")
        if asyncio.current_task() not in self._tasks:
            await asyncio.shield(self._stopping)

    async def _stop(self, timeout: float | None) -> None:
        try:
            await self.client.claimer.remove(self)
            for item in self._ready:
                for claim in _claims(item):
                    self.settle(claim, RELEASE)
            self._ready.clear()
            self._waiting = 0
            await self._drain(timeout or 0.0)
            await self._await_settled(max(1.0, timeout or 0.0))
            await self.client.detach(self)
        finally:
            self._tasks = []
            self._stopping = None

    async def _drain(self, timeout: float) -> None:
        began = perf_counter()
        for task in self._tasks:
            if task not in self._running:
                task.cancel()
        _, late = await asyncio.wait(self._tasks, timeout=timeout)
        if late:
            self.client.events.emit(told.DrainTimedOut(self.name, perf_counter() - began, len(late)))
            for task in late:
                task.cancel()
            await asyncio.wait(late)

    async def _await_settled(self, timeout: float) -> None:
        """Wait until the outcomes are written; give up when the server stays out of reach."""
        while self.unsettled:
            self._all_settled.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._all_settled.wait()
            except TimeoutError:
                self.client.abandon(self)
                return

    def receive(self, claims: list[Claim]) -> None:
        """Take messages that were claimed for this worker."""
        self.unsettled.update(claims)
        if self.is_stopping:
            for claim in claims:
                self.settle(claim, RELEASE)
            return
        self._ready.extend(claims)
        self._waiting += len(claims)
        self._rouse(len(claims))

    def receive_run(self, run: list[Claim]) -> None:
        """Take messages of one key, to be handled one after the other."""
        self.unsettled.update(run)
        if self.is_stopping:
            for claim in run:
                self.settle(claim, RELEASE)
            return
        self._ready.append(run)
        self._waiting += len(run)
        self._rouse(1)

    def settle(self, claim: Claim, outcome: FinalOutcome) -> None:
        """Hand an outcome to the settler."""
        claim.is_ending = True
        self.client.settler.put(claim, outcome)

    def settled(self, claim: Claim, outcome: FinalOutcome, *, lost: bool) -> None:
        """The outcome was written, or the lease was gone."""
        self.unsettled.discard(claim)
        if not self.unsettled:
            self._all_settled.set()
        intake = self._intake
        if intake is None:
            return
        now = asyncio.get_running_loop().time()
        if isinstance(outcome, Retry) and not lost:
            lane = intake.lane((claim.queue, claim.priority, claim.key is not None))
            lane.note_due(now + (outcome.delay or 0.0))
        if claim.key is not None:
            intake.keys.settled((claim.queue, claim.key), claim.priority, more=claim.has_more)
        if isinstance(outcome, Release) and not self.is_stopping:
            intake.scan_at = min(intake.scan_at, max(now, intake.earliest_scan))
        self.client.claimer.wake()

    def _rouse(self, count: int) -> None:
        while self._free and count:
            waiter = self._free.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    async def _next(self) -> "Claim | list[Claim]":
        while not self._ready:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._free.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._rouse(1)
                raise
        item = self._ready.popleft()
        self._waiting -= 1 if isinstance(item, Claim) else len(item)
        if self._waiting < self.options.fetch_batch_size:
            self.client.claimer.wake()
        return item

    async def _supervise(self, body: Callable[[], Awaitable[None]]) -> None:
        """Run a handler's loop; an error that nobody foresaw costs the message at hand, not the loop."""
        task = asyncio.current_task()
        assert task is not None
        while not self.is_stopping:
            try:
                await body()
            except Exception as error:  # noqa: BLE001 - told, and the loop goes on
                self.client.events.emit(told.LoopCrashed(task.get_name(), error))
                for claim in self._running.pop(task, ()):
                    if claim in self.unsettled and not claim.is_ending:
                        self.settle(claim, Release(counts=True))

    async def _singles(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not self.is_stopping:
            await self._handle_run(_claims(await self._next()), task)

    async def _handle_run(self, run: list[Claim], task: asyncio.Task[None]) -> None:
        """Handle messages one after the other; after one that holds its key, give back the rest."""
        for place, claim in enumerate(run, start=1):
            self._running[task] = run
            outcome = await attempt(self, claim, task)
            del self._running[task]
            if outcome is not None:
                self.settle(claim, outcome)
            if place < len(run) and (self.is_stopping or outcome is None or holds_key(outcome, self.options)):
                for later in run[place:]:
                    self.settle(later, RELEASE)
                return

    async def _batches(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not self.is_stopping:
            claims = list(_claims(await self._next()))
            await self._fill(claims)
            if self._must_end():
                for claim in claims:
                    self.settle(claim, RELEASE)
                return
            self._running[task] = claims
            outcomes = await attempt_batch(self, claims, task)
            del self._running[task]
            held: set[tuple[str, str]] = set()
            for claim, outcome in zip(claims, outcomes, strict=True):
                if outcome is None:
                    continue
                final = outcome
                if claim.key is not None:
                    # A later message of a key that failed comes again after it, so that order holds.
                    final = Release(counts=True) if (claim.queue, claim.key) in held else outcome
                    if holds_key(final, self.options):
                        held.add((claim.queue, claim.key))
                self.settle(claim, final)

    def _must_end(self) -> bool:
        return self.is_stopping

    async def _fill(self, claims: list[Claim]) -> None:
        """Add what is ready, and wait a while for more, up to the batch's size."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.options.batch_wait
        while len(claims) < self.options.most_per_call and not self.is_stopping:
            if self._ready:
                # A run stays whole: its key must not be in two hands.
                if len(claims) + len(_claims(self._ready[0])) > self.options.most_per_call:
                    return
                claims += _claims(await self._next())
                continue
            if loop.time() >= until:
                return
            waiter: asyncio.Future[None] = loop.create_future()
            self._free.append(waiter)
            try:
                await asyncio.wait([waiter], timeout=until - loop.time())
            except asyncio.CancelledError:
                for claim in claims:
                    self.settle(claim, RELEASE)
                raise
            finally:
                # One that nobody waits for must not swallow the call for the next message.
                waiter.cancel()

    def finished(self, seconds: float, messages: int) -> None:
        """A handler took so long for so many messages."""
        each = seconds / messages
        self._seconds = each if self._seconds is None else self._seconds + 0.2 * (each - self._seconds)

    def drop(self, claim: Claim) -> None:
        """The lease was gone before the handler could begin."""
        if not claim.is_lost:
            claim.is_lost = True
            self.client.events.emit(told.LeaseLost(claim.queue, self.name, claim.id, claim.deliveries_count, "waiting"))
        self.settled(claim, RELEASE, lost=True)


def _claims(item: "Claim | list[Claim]") -> list[Claim]:
    return [item] if isinstance(item, Claim) else item


def holds_key(outcome: FinalOutcome, options: WorkerOptions) -> bool:
    """Whether later messages of the key must wait after this outcome."""
    match outcome:
        case Retry() | Release():
            return True
        case Dead():
            return options.on_dead == "block"
        case _:
            return False

"""The worker: claims messages of its queues and runs a handler on each, N at a time.

A handler gets a `Claim` (or, with `batch`, a list of them) and returns an outcome. What it raises is a
failed attempt; what it does to itself (hang, cancel, outlive its lease) harms no other message.
`stop` lets what runs finish, gives back at once what has not started, and leaves nothing leased.
Built by the broker for each subscriber, or used directly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from time import perf_counter
from typing import Any

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal import events
from faststream_outbox._internal.outcomes.calling import apart, limited
from faststream_outbox._internal.outcomes.outcome import RELEASE, FinalOutcome, Outcome, Release, Retry
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.executor import Executor, Ready
from faststream_outbox._internal.queue.options import WorkerOptions, checked_options, checked_queues
from faststream_outbox._internal.service import LONGEST_PAUSE, STUCK_SECONDS, called, pause_after
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.errors import WrongEventLoop

Handle = Callable[[Claim], Awaitable[Outcome]]
HandleBatch = Callable[[Sequence[Claim]], Awaitable[Sequence[Outcome]]]

HOARD_SECONDS = 0.05
"""A worker keeps no more messages waiting than it handles in this time, and as many again on their way."""
MOST_UNSETTLED = 5000
"""With so many outcomes that are not written yet, nothing more is claimed."""
SHORTEST_WAIT = 1.0
"""Seconds that a stop waits at least for a claim under way, for a cancelled handler, and for outcomes."""


class Worker:
    """Competes with all other workers for the messages of its queues.

    engine: where the table is; used where there is no client.
    table: the queues' table, from make_outbox_table.
    queues: the queue's name, or several names with fair shares.
    handle: a coroutine function that gets a claim (with batch=True, a list) and returns an outcome (a list).
    dlq_table: the dead letters' table, from make_dlq_table; None deletes what fails for good.
    client: the client to share; None finds the one of this engine and these tables.
    name: its name in events; None takes those of its queues.
    options: a WorkerOptions; or else
    settings: the fields of one, by name.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        table: Table,
        queues: str | list[str] | tuple[str, ...],
        handle: Handle | HandleBatch,
        *,
        dlq_table: Table | None = None,
        client: OutboxClient | None = None,
        name: str | None = None,
        options: WorkerOptions | None = None,
        **settings: Any,
    ) -> None:
        self.queues: tuple[str, ...] = checked_queues(queues)
        self.options: WorkerOptions = checked_options(options) or WorkerOptions(**settings)
        self.client: OutboxClient = client or OutboxClient.shared(engine, table, dlq_table)
        self.client.check(self.options)
        self.events: events.Events = self.client.events
        self.name: str = name or ",".join(self.queues)
        self.handle: Any = apart(limited(handle, self.options.handler_timeout))
        self._seconds: float | None = None
        self._crashes = 0
        self._crashed_at = 0.0
        self._assemble(None)

    def _assemble(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Make what belongs to one event loop; in another one it is made anew."""
        self._loop = loop
        self.is_stopping: bool = False
        self.ready: Ready = Ready()
        self._executors: dict[asyncio.Task[None], Executor] = {}
        self.unsettled: set[Claim] = set()
        self._some_settled = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._lingering: asyncio.Task[None] | None = None

    def _move(self) -> None:
        """Belong to the running event loop: the one before may have ended without a stop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and self._executors and self._loop.is_running():
                msg = f"{self.name} runs in another event loop. Make a worker for each loop."
                raise WrongEventLoop(msg)
            self._assemble(loop)

    @property
    def is_running(self) -> bool:
        """Whether it claims and handles."""
        return bool(self._executors) and not self.is_stopping

    @property
    def is_healthy(self) -> bool:
        """Whether every one of its loops is alive; also so while it stops."""
        return self.is_stopping or all(executor.is_ready for executor in self._executors.values())

    def stuck_for(self, now: float) -> float:
        """Seconds since a message found a handler, if some wait although an executor is free; else 0."""
        if self.is_stopping or not self.ready.count or all(e.holds for e in self._executors.values()):
            return 0.0
        waited = now - self.ready.moved_at
        return waited if waited > STUCK_SECONDS else 0.0

    def busy_for(self, now: float) -> float:
        """Seconds that every executor has been with the same handler; 0 while one is free."""
        began = [executor.began_at for executor in self._executors.values()]
        return 0.0 if not began else min(0.0 if at is None else now - at for at in began)

    @property
    def recovering(self) -> int:
        """Executors that wait for a moment because they have crashed."""
        return sum(not executor.is_ready for executor in self._executors.values())

    @property
    def is_cancelled(self) -> bool:
        """Whether the event loop is ending everything, as at the end of `asyncio.run`."""
        return self.client.is_cancelled

    @property
    def running(self) -> int:
        """Handlers that run now."""
        return sum(bool(executor.holds) for executor in self._executors.values())

    @property
    def waiting(self) -> int:
        """Messages claimed and not started."""
        return self.ready.count

    @property
    def room(self) -> int:
        """How many messages to claim now: as many as soon find a handler, never more than a batch."""
        options = self.options
        if self.is_stopping or len(self.unsettled) >= MOST_UNSETTLED:
            return 0
        batch = max(options.fetch_batch_size, options.most_per_call)
        idle = (options.max_workers - self.running) * options.most_per_call
        if self._seconds is not None:
            soon = min(batch, int(HOARD_SECONDS * options.max_workers / max(self._seconds, 1e-9)))
            if soon > idle:
                # While these are handled the next ones are on their way.
                return soon if self.ready.count <= soon else 0
        return min(batch, max(0, idle - self.ready.count))

    @property
    def longest_run(self) -> int:
        """How many messages of one key to claim at once: what a handler takes, where it takes several."""
        return self.options.most_per_call if self.options.batch else self.options.fetch_batch_size

    async def start(self) -> None:
        """Begin to claim and handle, unless already running; a stop under way ends first."""
        self._move()
        if self._stopping is not None and asyncio.current_task() not in self._executors:
            await asyncio.shield(self._stopping)
        if self._executors:
            return
        self.is_stopping = False
        for number in range(self.options.max_workers):
            self._employ(f"outbox {self.name} {number}")
        try:
            await self.client.attach(self)
        except BaseException:
            executors, self._executors = self._executors, {}
            for task in executors:
                task.cancel()
            raise

    def employs(self, task: asyncio.Task[Any]) -> bool:
        """Whether this is the task of one of its executors."""
        return task in self._executors

    def _employ(self, name: str, pause: float = 0.0) -> None:
        executor = Executor(self, name, pause)
        task = asyncio.get_running_loop().create_task(executor.run(), name=name)
        self._executors[task] = executor
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """An executor's loop is over: as it should be, or another one must take its place."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        executor = self._executors.get(task)
        if executor is None or self.is_stopping or self.is_cancelled:
            return
        del self._executors[task]
        self._crashes = 0 if perf_counter() - self._crashed_at > LONGEST_PAUSE else self._crashes
        self._crashes, self._crashed_at = self._crashes + 1, perf_counter()
        self._employ(executor.name, pause_after(self._crashes))
        executor.let_go()
        self.events.emit(events.LoopCrashed(executor.name, error or RuntimeError(f"{executor.name} ended.")))

    async def stop(self, timeout: float | None = None) -> None:
        """Finish what runs, within `timeout` or `graceful_timeout`; give back the rest at once.

        Called from a handler of its own it returns at once, and the worker stops when that has ended. A handler
        that does not end when it is cancelled, as one in a thread, keeps its message leased until it does.
        """
        self._move()
        if not self._executors:
            return
        if self._stopping is None:
            self.is_stopping = True
            limit = self.options.graceful_timeout if timeout is None else timeout
            self._stopping = asyncio.get_running_loop().create_task(self._stop(limit), name=f"stop {self.name}")
        if asyncio.current_task() not in self._executors:
            await asyncio.shield(self._stopping)

    async def _stop(self, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + (timeout or 0.0)
        try:
            removing = loop.create_task(self.client.claimer.leave(self), name=f"remove {self.name}")
            for claim in self.ready.clear():
                self.settle(claim, RELEASE)
            late = await self._drain(timeout or 0.0)
            # What a claim under way brings is given back at once, or left to its lease where the server is silent.
            await asyncio.wait([removing], timeout=max(SHORTEST_WAIT, until - loop.time()))
            removing.cancel()
            busy = {claim for executor in late.values() for claim in executor.holds}
            await self._await_settled(max(SHORTEST_WAIT, until - loop.time()), busy)
            if late:
                self._lingering = loop.create_task(self._linger(late), name=f"linger {self.name}")
            elif self._lingering is None:
                await self.client.detach(self)
        finally:
            self._executors = {}
            self._stopping = None

    async def _linger(self, late: dict[asyncio.Task[None], Executor]) -> None:
        """Keep the leases of handlers that did not end, and write their outcomes when they do."""
        for executor in late.values():
            executor.is_last = True
        await asyncio.wait(late)
        await self._await_settled(LONGEST_PAUSE)
        self._lingering = None
        if not self._executors:
            await self.client.detach(self)

    async def _drain(self, timeout: float) -> dict[asyncio.Task[None], Executor]:
        """Wait for what runs; gives the executors that run on although they were cancelled."""
        began = perf_counter()
        for task, executor in self._executors.items():
            if not executor.holds:
                task.cancel()
        _, late = await asyncio.wait(list(self._executors), timeout=timeout)
        if late:
            self.events.emit(events.DrainTimedOut(self.name, perf_counter() - began, len(late)))
            for task in late:
                task.cancel()
            _, late = await asyncio.wait(late, timeout=SHORTEST_WAIT)
            if late:
                self.events.emit(events.StillRunning(self.name, len(late)))
        return {task: self._executors[task] for task in late}

    async def _await_settled(self, timeout: float, busy: Collection[Claim] = ()) -> None:
        """Wait until all outcomes but those of `busy` are written; give up when the server stays out of reach."""
        until = asyncio.get_running_loop().time() + timeout
        while not self.unsettled.issubset(busy):
            self._some_settled.clear()
            if not await called(self._some_settled, until):
                self.client.abandon(self)
                self.unsettled.intersection_update(busy)

    def receive(self, claims: list[Claim]) -> None:
        """Take messages that were claimed for this worker."""
        self.unsettled.update(claims)
        if self.is_stopping:
            for claim in claims:
                self.settle(claim, RELEASE)
            return
        self.ready.put(claims)

    def receive_run(self, run: list[Claim]) -> None:
        """Take messages of one key, to be handled one after the other."""
        self.unsettled.update(run)
        if self.is_stopping:
            for claim in run:
                self.settle(claim, RELEASE)
            return
        self.ready.put_run(run)

    def settle(self, claim: Claim, outcome: FinalOutcome) -> None:
        """Hand an outcome to the settler."""
        claim.is_ending = True
        self.client.settler.put(claim, outcome)

    def settled(self, claim: Claim, outcome: FinalOutcome, *, lost: bool) -> None:
        """The outcome was written, or the lease was gone; called by the settler."""
        if not lost:
            self._tell_others(claim, outcome)
        self.unsettled.discard(claim)
        if not self.unsettled or self.is_stopping:
            self._some_settled.set()
        self.client.plans.settled(self, claim, outcome, asyncio.get_running_loop().time())

    def _tell_others(self, claim: Claim, outcome: FinalOutcome) -> None:
        """Tell workers when a message that comes again is due; those of other processes too, as this one may end."""
        if isinstance(outcome, (Release, Retry)):
            due_in, may_be_later = (outcome.delay or 0.0) if isinstance(outcome, Retry) else 0.0, False
            if claim.retried_at is not None and claim.retried_at + due_in <= asyncio.get_running_loop().time():
                # Written slowly. If it was due before its commit, it lies below the floors of claims that did not see
                # it, and who hears that it is due now scans below. If it is not due yet, they ask when it will be.
                due_in, may_be_later = 0.0, True
            self.client.wakeups.tell(
                Hint(
                    claim.queue,
                    priorities=frozenset((claim.priority,)),
                    keyed=claim.key is not None,
                    keyless=claim.key is None,
                    due_in=due_in,
                    later=may_be_later,
                    scan=isinstance(outcome, Release),
                )
            )

    async def next(self) -> list[Claim]:
        """The next message, or run of messages of one key, for an executor."""
        run = await self.ready.take()
        self._make_room()
        return run

    def more(self, most: int) -> list[Claim]:
        """What an executor can add to its batch at once, up to so many messages."""
        taken = self.ready.take_more(most)
        self._make_room()
        return taken

    def _make_room(self) -> None:
        if self.ready.count <= self.options.fetch_batch_size:
            self.client.plans.work.set()

    def finished(self, seconds: float, messages: int) -> None:
        """A handler took so long for so many messages."""
        each = seconds / messages
        self._seconds = each if self._seconds is None else self._seconds + 0.2 * (each - self._seconds)

    def drop(self, claim: Claim) -> None:
        """The lease was gone before the handler could begin."""
        if not claim.is_lost:
            claim.is_lost = True
            self.events.emit(events.LeaseWasLost(claim.queue, self.name, claim.id, claim.deliveries_count, "waiting"))
        self.settled(claim, RELEASE, lost=True)

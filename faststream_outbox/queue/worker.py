"""The worker: claims messages of its queues and runs a handler on each, N at a time.

A handler gets a `Claim` (or, with `batch`, a list of them) and returns an outcome. What it raises is a
failed attempt; what it does to itself (hang, cancel, outlive its lease) harms no other message.
`stop` lets what runs finish, gives back at once what has not started, and leaves nothing leased.
Built by the broker for each subscriber, or used directly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.errors import WrongEventLoop
from faststream_outbox.events import table as told
from faststream_outbox.outcomes.apart import apart
from faststream_outbox.outcomes.limited import limited
from faststream_outbox.outcomes.outcome import RELEASE, FinalOutcome, Outcome, Release
from faststream_outbox.queue.claim import Claim
from faststream_outbox.queue.hand import Hand
from faststream_outbox.queue.options import WorkerOptions, checked_queues
from faststream_outbox.queue.ready import Ready
from faststream_outbox.service import LONGEST_PAUSE, pause_after

if TYPE_CHECKING:
    from faststream_outbox.queue.client import OutboxClient
    from faststream_outbox.queue.intake import Intake

Handle = Callable[[Claim], Awaitable[Outcome]]
HandleBatch = Callable[[Sequence[Claim]], Awaitable[Sequence[Outcome]]]

HOARD_SECONDS = 0.05
"""A worker keeps no more messages waiting than it handles in this time, and as many again on their way."""
MOST_UNSETTLED = 5000
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
        self.handle: Any = apart(limited(handle, self.options.handler_timeout))
        self._seconds: float | None = None
        self._crashes = 0
        self._crashed_at = 0.0
        self._assemble(None)

    def _assemble(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Make what belongs to one event loop; in another one it is made anew."""
        self._loop = loop
        self.is_stopping = False
        self.ready = Ready()
        self._hands: dict[asyncio.Task[None], Hand] = {}
        self.unsettled: set[Claim] = set()
        self._some_settled = asyncio.Event()
        self._intake: Intake | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._lingering: asyncio.Task[None] | None = None

    def _move(self) -> None:
        """Belong to the running event loop: the one before may have ended without a stop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and self._hands and self._loop.is_running():
                msg = f"{self.name} runs in another event loop. Make a worker for each loop."
                raise WrongEventLoop(msg)
            self._assemble(loop)

    @property
    def is_running(self) -> bool:
        """Whether it claims and handles."""
        return bool(self._hands) and not self.is_stopping

    @property
    def is_healthy(self) -> bool:
        """Whether every one of its loops is alive; also so while it stops."""
        return self.is_stopping or all(hand.is_ready for hand in self._hands.values())

    @property
    def running(self) -> int:
        """Handlers that run now."""
        return sum(bool(hand.holds) for hand in self._hands.values())

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
        if self._stopping is not None and asyncio.current_task() not in self._hands:
            await asyncio.shield(self._stopping)
        if self._hands:
            return
        self.is_stopping = False
        for number in range(self.options.max_workers):
            self._employ(f"outbox {self.name} {number}")
        try:
            self._intake = await self.client.attach(self)
        except BaseException:
            hands, self._hands = self._hands, {}
            for task in hands:
                task.cancel()
            raise

    def employs(self, task: asyncio.Task[Any]) -> bool:
        """Whether this is the task of one of its hands."""
        return task in self._hands

    def _employ(self, name: str, pause: float = 0.0) -> None:
        hand = Hand(self, name, pause)
        task = asyncio.get_running_loop().create_task(hand.run(), name=name)
        self._hands[task] = hand
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A hand's loop is over: as it should be, or another one must take its place."""
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        hand = self._hands.get(task)
        if hand is None or self.is_stopping or self.client.is_cancelled:
            return
        del self._hands[task]
        self._crashes = 0 if perf_counter() - self._crashed_at > LONGEST_PAUSE else self._crashes
        self._crashes, self._crashed_at = self._crashes + 1, perf_counter()
        self._employ(hand.name, pause_after(self._crashes))
        hand.let_go()
        self.client.events.emit(told.LoopCrashed(hand.name, error or RuntimeError(f"{hand.name} ended.")))

    async def stop(self, timeout: float | None = None) -> None:
        """Finish what runs, within `timeout` or `graceful_timeout`; give back the rest at once.

        Called from a handler of its own it returns at once, and the worker stops when that has ended. A handler
        that does not end when it is cancelled, as one in a thread, keeps its message leased until it does.
        """
        self._move()
        if not self._hands:
            return
        if self._stopping is None:
            self.is_stopping = True
            limit = self.options.graceful_timeout if timeout is None else timeout
            self._stopping = asyncio.get_running_loop().create_task(self._stop(limit), name=f"stop {self.name}")
        if asyncio.current_task() not in self._hands:
            await asyncio.shield(self._stopping)

    async def _stop(self, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + (timeout or 0.0)
        try:
            removing = loop.create_task(self.client.claimer.remove(self), name=f"remove {self.name}")
            for claim in self.ready.clear():
                self.settle(claim, RELEASE)
            late = await self._drain(timeout or 0.0)
            # What a claim under way brings is given back at once, or left to its lease where the server is silent.
            await asyncio.wait([removing], timeout=max(SHORTEST_WAIT, until - loop.time()))
            removing.cancel()
            busy = {claim for hand in late.values() for claim in hand.holds}
            await self._await_settled(max(SHORTEST_WAIT, until - loop.time()), busy)
            if late:
                self._lingering = loop.create_task(self._linger(late), name=f"linger {self.name}")
            elif self._lingering is None:
                await self.client.detach(self)
        finally:
            self._hands = {}
            self._stopping = None

    async def _linger(self, late: "dict[asyncio.Task[None], Hand]") -> None:
        """Keep the leases of handlers that did not end, and write their outcomes when they do."""
        for hand in late.values():
            hand.is_last = True
        await asyncio.wait(late)
        await self._await_settled(LONGEST_PAUSE)
        self._lingering = None
        if not self._hands:
            await self.client.detach(self)

    async def _drain(self, timeout: float) -> "dict[asyncio.Task[None], Hand]":
        """Wait for what runs; gives those that run on although they were cancelled."""
        began = perf_counter()
        for task, hand in self._hands.items():
            if not hand.holds:
                task.cancel()
        _, late = await asyncio.wait(list(self._hands), timeout=timeout)
        if late:
            self.client.events.emit(told.DrainTimedOut(self.name, perf_counter() - began, len(late)))
            for task in late:
                task.cancel()
            _, late = await asyncio.wait(late, timeout=SHORTEST_WAIT)
            if late:
                self.client.events.emit(told.StillRunning(self.name, len(late)))
        return {task: self._hands[task] for task in late}

    async def _await_settled(self, timeout: float, busy: Collection[Claim] = ()) -> None:
        """Wait until all outcomes but those of `busy` are written; give up when the server stays out of reach."""
        try:
            async with asyncio.timeout(timeout):
                while not self.unsettled.issubset(busy):
                    self._some_settled.clear()
                    await self._some_settled.wait()
        except TimeoutError:
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
        """The outcome was written, or the lease was gone."""
        self.unsettled.discard(claim)
        if not self.unsettled or self.is_stopping:
            self._some_settled.set()
        intake = self._intake
        if intake is None:
            return
        if claim.key is not None:
            intake.keys.settled((claim.queue, claim.key), claim.priority, more=claim.has_more)
        if isinstance(outcome, Release) and not self.is_stopping:
            now = asyncio.get_running_loop().time()
            intake.scan_at = min(intake.scan_at, max(now, intake.earliest_scan))
        self.client.claimer.wake()

    async def next(self) -> list[Claim]:
        """The next message, or run of messages of one key, for a hand."""
        run = await self.ready.take()
        if self.ready.count <= self.options.fetch_batch_size:
            self.client.claimer.wake()
        return run

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

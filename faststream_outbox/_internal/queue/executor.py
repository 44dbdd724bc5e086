"""An executor: takes what is ready, attempts it, hands on the outcome, and again.

Messages of one key are handled one after the other; after one that failed the rest of the run is given
back, so that order holds, also where its failure cannot be written in time. An error that nobody foresaw
costs the message in flight, not the loop. A worker has `max_workers` of them.
"""

import asyncio
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

"""One attempt: from a claim in flight to an outcome that can be written, whatever the handler does.

A claim whose lease ran out while it waited is not started. One that was delivered too often is not
started either. An exception, of whatever kind, is a failed attempt; so is a CancelledError that nobody
but the handler itself caused. A KeyboardInterrupt passes: it is meant for the program.
Called by `executor`, for one message or for a batch, and by the test broker.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from faststream_outbox._internal import events
from faststream_outbox._internal.outcomes.calling import ended
from faststream_outbox._internal.outcomes.outcome import (
    CRASH_LOOP,
    DONE,
    MAX_DELIVERIES,
    RELEASE,
    STOPPED,
    Dead,
    Done,
    FinalOutcome,
    Outcome,
    Retry,
    resolved,
)
from faststream_outbox._internal.queue import clock
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox.errors import WrongOutcomes

if TYPE_CHECKING:
    from faststream_outbox._internal.queue.worker import Worker


def _known(outcome: object) -> Outcome:
    if isinstance(outcome, Outcome):
        return outcome
    return Retry(error=WrongOutcomes(f"The handler answered {outcome!r}; return DONE, Retry(…), Dead(…) or the like."))


def overdelivered(claim: Claim, options: WorkerOptions) -> Dead | None:
    """The end of a message that was claimed too often: more than `max_deliveries`, or ever without an outcome."""
    if options.max_deliveries is not None and claim.deliveries_count > options.max_deliveries:
        return Dead(MAX_DELIVERIES)
    if claim.deliveries_count - claim.attempts_count > options.crash_limit:
        return Dead(CRASH_LOOP)
    return None


async def attempt(worker: "Worker", claim: Claim, task: asyncio.Task[Any]) -> FinalOutcome | None:
    """Run the handler on one message; None if the lease was gone before it could start."""
    if not _may_start(worker, claim):
        return None
    dead = overdelivered(claim, worker.options)
    if dead is not None:
        return await _final(worker, claim, dead)
    _start(worker, claim, task)
    cancelled = partial(_cancelled, worker, [claim], task)
    outcome: Outcome
    try:
        outcome, claim.duration = await ended(worker.handle, claim, failed=_failed, cancelled=cancelled)
    finally:
        claim.task = None
    _uncancel(worker, task)
    worker.finished(claim.duration, 1)
    if outcome is DONE:
        return DONE
    return await _final(worker, claim, _known(outcome))


async def attempt_batch(
    worker: "Worker", claims: Sequence[Claim], task: asyncio.Task[Any]
) -> list[FinalOutcome | None]:
    """Run the handler on a batch; an exception fails every message of it."""
    finals: dict[int, FinalOutcome | None] = {}
    started: list[Claim] = []
    taken: set[tuple[str, str]] = set()
    for claim in claims:
        if claim.key is not None and (claim.queue, claim.key) in taken:
            # It must wait for the one in front of it, which somebody else has or which is not yet a dead letter.
            finals[claim.id] = RELEASE
        elif not _may_start(worker, claim):
            finals[claim.id] = None
            if claim.key is not None:
                taken.add((claim.queue, claim.key))
        elif (dead := overdelivered(claim, worker.options)) is not None:
            if claim.key is not None:
                taken.add((claim.queue, claim.key))
            finals[claim.id] = await _final(worker, claim, dead)
        else:
            _start(worker, claim, task)
            started.append(claim)
    if started:
        outcomes, duration = await ended(
            partial(_answers, worker),
            started,
            failed=lambda error: [_failed(error)] * len(started),
            cancelled=partial(_all_cancelled, worker, started, task),
        )
        _uncancel(worker, task)
        worker.finished(duration, len(started))
        for claim, outcome in zip(started, outcomes, strict=True):
            claim.task = None
            claim.duration = duration
            finals[claim.id] = DONE if outcome is DONE else await _final(worker, claim, _known(outcome))
    return [finals[claim.id] for claim in claims]


async def _answers(worker: "Worker", claims: Sequence[Claim]) -> Sequence[Outcome]:
    outcomes: Sequence[Outcome] = await worker.handle(claims)
    if len(outcomes) != len(claims):
        msg = f"The batch handler answered {len(outcomes)} outcomes for {len(claims)} messages."
        raise WrongOutcomes(msg)
    return outcomes


def _may_start(worker: "Worker", claim: Claim) -> bool:
    if not claim.is_lost and clock.now() < claim.deadline:
        return True
    worker.drop(claim)
    return False


def _start(worker: "Worker", claim: Claim, task: asyncio.Task[Any]) -> None:
    claim.was_started = True
    claim.task = task
    emitter = worker.events
    if events.Started in emitter:
        size = len(claim.payload)
        emitter.emit(events.Started(claim.queue, worker.name, claim.id, claim.deliveries_count, size))


def _failed(error: BaseException) -> Outcome:
    return Retry(error=error)


async def _all_cancelled(
    worker: "Worker", claims: Sequence[Claim], task: asyncio.Task[Any], error: asyncio.CancelledError
) -> Sequence[Outcome]:
    return [await _cancelled(worker, claims, task, error)] * len(claims)


async def _cancelled(
    worker: "Worker", claims: Sequence[Claim], task: asyncio.Task[Any], error: asyncio.CancelledError
) -> Outcome:
    if worker.is_stopping:
        return STOPPED
    if worker.is_cancelled:
        # The event loop is being torn down, as at the end of asyncio.run: nobody could write an outcome.
        raise error
    # A lost lease, or the handler itself, cancelled the task: that is over now.
    while task.cancelling():
        task.uncancel()
    return STOPPED if any(claim.is_lost for claim in claims) else Retry(error=error)


def _uncancel(worker: "Worker", task: asyncio.Task[Any]) -> None:
    """A handler that went on in spite of a cancellation has dealt with it: it is not meant for the next message."""
    if task.cancelling() and worker.employs(task) and not (worker.is_stopping or worker.is_cancelled):
        while task.cancelling():
            task.uncancel()


async def _final(worker: "Worker", claim: Claim, outcome: Outcome) -> FinalOutcome:
    if type(outcome) is Done:
        return outcome
    final = resolved(
        outcome,
        strategy=worker.options.retry_strategy,
        on_undecided=worker.options.on_undecided,
        now=datetime.now(UTC),
        first_attempt_at=claim.first_attempt_at,
        attempts_count=claim.attempts_count + 1,
    )
    hook = worker.options.on_terminal_failure
    if isinstance(final, Dead) and hook is not None:
        # Before it is written: a crash in between calls the hook again, instead of never.
        try:
            answer = hook(claim)
            if isawaitable(answer):
                await answer
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            worker.events.emit(events.HookFailed("on_terminal_failure", error))
            if isinstance(error, asyncio.CancelledError) and worker.is_cancelled:
                raise
    return final

"""Calling a handler: in a context and a time of its own, and what its end means.

`apart`: what a handler sets in a ContextVar is not there for the next message. A worker's loop is one task that handles
one message after the other, and a task has one context. A task for each message would cost more than all the rest; so
the handler's steps are taken one by one in a copy of the context.

`limited`: one that takes too long is cancelled, and that is a failed attempt. What it had decided before counts, above
all that its transaction has committed. One that does not end when it is cancelled is waited for.

`ended`: whatever a handler raises is an answer too, but for what ends the program. Used by the workers of both
engines; `limited` and `overdue` also by the broker, whose subscribers of topics limit their handlers themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import Context, ContextVar, copy_context
from time import perf_counter
from typing import Any, TypeVar

from faststream_outbox._internal.outcomes.failure import ENDING
from faststream_outbox._internal.outcomes.outcome import Outcome, Retry

T = TypeVar("T")

Handle = Callable[..., Awaitable[Any]]


async def ended(
    call: Callable[..., Awaitable[T]],
    *given: Any,
    failed: Callable[[BaseException], T],
    cancelled: Callable[[asyncio.CancelledError], Awaitable[T]],
) -> tuple[T, float]:
    """What was answered, or what its end means, and its seconds; `ENDING` but a cancellation passes.

    failed: what an error means.
    cancelled: what a cancellation means: the handler's own, or one of its task, which it may raise on.
    """
    began = perf_counter()
    try:
        answer = await call(*given)
    except asyncio.CancelledError as error:
        answer = await cancelled(error)
    except ENDING:
        raise
    except BaseException as error:  # noqa: BLE001 - a failed attempt, kept with the outcome
        answer = failed(error)
    return answer, perf_counter() - began


def apart(handle: Handle) -> Handle:
    """The handler, each call of which has a context of its own."""

    async def alone(*given: Any) -> Any:
        return await _Steps(copy_context(), handle, given)

    return alone


class _Steps:
    """An awaitable that runs another one in a context that is not the task's."""

    __slots__ = ("_context", "_given", "_handle")

    def __init__(self, context: Context, handle: Handle, given: tuple[Any, ...]) -> None:
        self._context = context
        self._handle = handle
        self._given = given

    def __await__(self) -> Generator[Any, None, Any]:
        run = self._context.run
        steps: Any = run(self._handle, *self._given).__await__()
        try:
            waits_for = run(next, steps)
            while True:
                try:
                    yield waits_for
                except GeneratorExit:
                    run(steps.close)
                    raise
                except BaseException as error:  # noqa: BLE001 - a cancellation, which the handler gets to see
                    waits_for = run(steps.throw, error)
                else:
                    waits_for = run(next, steps)
        except StopIteration as done:
            return done.value


def limited(handle: Handle, seconds: float | None) -> Handle:
    """The handler of claims within its time; the handler itself where there is no limit."""
    if seconds is None:
        return handle

    async def within(given: Any) -> Any:
        answer, late = await _timed(handle, given, seconds=seconds)
        if late is None:
            return answer
        return [_decided(one, late) for one in given] if isinstance(given, Sequence) else _decided(given, late)

    return within


def in_time(call: Handle, seconds: float | None) -> Handle:
    """A call that raises `TimeoutError` where it takes longer; the call itself where there is no limit."""
    if seconds is None:
        return call

    async def within(*given: Any) -> Any:
        answer, late = await _timed(call, *given, seconds=seconds)
        if late is not None:
            raise late
        return answer

    return within


async def _timed(call: Handle, *given: Any, seconds: float) -> tuple[Any, TimeoutError | None]:
    limit = _Limit(seconds)
    token = _LIMIT.set(limit)
    try:
        async with limit.timeout:
            return await call(*given), None
    except TimeoutError as error:
        if not limit.timeout.expired():
            raise
        late = limit.error()
        late.__cause__ = error
        return None, late
    finally:
        _LIMIT.reset(token)


class _Limit:
    """The time of one call."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.timeout = asyncio.timeout(seconds)

    def error(self) -> TimeoutError:
        return TimeoutError(f"The handler did not end within {self.seconds:g} s: handler_timeout.")


_LIMIT: ContextVar[_Limit | None] = ContextVar("outbox_limit", default=None)


def overdue() -> TimeoutError | None:
    """The error of the call that is running, if it was cancelled because its time was over and ended otherwise."""
    limit, task = _LIMIT.get(), asyncio.current_task()
    was_cancelled = limit is not None and limit.timeout.expired() and task is not None and task.cancelling() > 0
    return limit.error() if limit is not None and was_cancelled else None


def _decided(claim: Any, error: TimeoutError) -> Outcome:
    decision: Outcome | None = claim.decision
    return Retry(error=error) if decision is None else decision

"""A handler that may take only so long: then it is cancelled, and that is a failed attempt.

What the handler had decided before counts, above all that its transaction has committed. A handler that does
not end when it is cancelled is waited for. Used by the workers of both engines.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any

from faststream_outbox._internal.outcomes.outcome import Outcome, Retry

Handle = Callable[..., Awaitable[Any]]


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

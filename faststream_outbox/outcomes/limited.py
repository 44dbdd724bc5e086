"""A handler that may take only so long: then it is cancelled, and that is a failed attempt.

What the handler had decided before counts, above all that its transaction has committed. A handler that does
not end when it is cancelled is waited for. Used by the workers of both engines.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from faststream_outbox.outcomes.outcome import Outcome, Retry

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
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await call(*given), None
    except TimeoutError as error:
        if not limit.expired():
            raise
        late = TimeoutError(f"The handler did not end within {seconds:g} s: handler_timeout.")
        late.__cause__ = error
        return None, late


def _decided(claim: Any, error: TimeoutError) -> Outcome:
    decision: Outcome | None = claim.decision
    return Retry(error=error) if decision is None else decision

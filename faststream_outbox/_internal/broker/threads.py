"""Handlers that are no coroutines: they run in a thread, and what runs there cannot be cancelled.

Whoever cancels such a handler waits for its thread, so that the message is not given to another one while
it is still being handled; what the thread answers counts. Only the end of the event loop cuts the waiting
short. Called by the subscriber.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from fast_depends.utils import is_coroutine_callable, run_in_threadpool

Call = Callable[..., Any]


def in_thread(call: Call) -> Call:
    """A handler as a coroutine function that ends when its thread ends; coroutine functions stay as they are."""
    if is_coroutine_callable(call):
        return call

    @functools.wraps(call)
    async def threaded(*args: Any, **kwargs: Any) -> Any:
        thread = asyncio.ensure_future(run_in_threadpool(call, *args, **kwargs))
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        while True:
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                # The loop cancels every task at its end, also the one that waits for the thread.
                if thread.cancelled():
                    raise
            finally:
                if thread.done() and not thread.cancelled():
                    # What the thread answers counts: the cancellation has come to nothing.
                    while task is not None and task.cancelling() > before:
                        task.uncancel()

    return threaded


def keep_callable(handler: Any) -> None:
    """Let tests and other code call a handler as it was written: FastStream would give them the coroutine function."""
    declared = getattr(handler, "_declared_call", None)
    if declared is not None and not is_coroutine_callable(declared):
        handler._composed_call = declared

"""Each call of a handler in a context of its own: what it sets in a ContextVar is not there for the next message.

A worker's loop is one task that handles one message after the other, and a task has one context. A task for each
message would cost more than all the rest; so the handler's steps are taken one by one in a copy of the context.
Used by the workers of both engines.
"""

from collections.abc import Awaitable, Callable, Generator
from contextvars import Context, copy_context
from typing import Any

Handle = Callable[..., Awaitable[Any]]


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

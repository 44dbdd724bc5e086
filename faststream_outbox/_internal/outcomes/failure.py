"""What counts as a failure, and an error as text that PostgreSQL is sure to store.

A dead letter must never fail to be written because of what the handler raised: exceptions whose
`repr` raises, NUL characters, lone surrogates, megabytes of text. It has no parameters of SQL statements in it, which
are the application's data. Used by the engines.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from faststream_outbox._internal.connections.cause import hide_parameters, said

MAX_EXCEPTION = 8192
MAX_MESSAGE = 8192
MAX_TRACEBACK = 65536
MAX_TYPE = 255

ENDING = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""Raised to end a task, a program or a generator. Whatever else a handler raises is its failure."""

Renderer = Callable[[BaseException], object]
"""Renders an error for `last_exception`; None keeps none."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a dead letter keeps of an error."""

    exception: str | None
    error_type: str | None
    error_message: str | None
    traceback: str | None


NO_FAILURE = Failure(None, None, None, None)


def storable(text: str, length: int) -> str:
    """The text without what PostgreSQL refuses, and not longer than `length`."""
    clean = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    return clean if len(clean) <= length else clean[: length - 1] + "…"


def _attempted(render: Callable[[], object], otherwise: str) -> str:
    try:
        return str(render())
    except ENDING:
        raise
    except BaseException as problem:  # noqa: BLE001 - the user's own code; what it says is kept instead
        return f"{otherwise} ({type(problem).__name__} while rendering it)"


def described(error: BaseException | None, renderer: Renderer | None = None) -> Failure:
    """The error as storable text; with a `renderer`, nothing but its type and places is kept beside what that says."""
    if error is None:
        return NO_FAILURE
    hide_parameters(error)
    name = _name(error)
    exception = _rendered(error, renderer)
    if renderer is None:
        message: str | None = _attempted(lambda: str(error), name)
        trace = _attempted(lambda: "".join(traceback.format_exception(error)), name)
    else:
        message, trace = exception, _attempted(lambda: "".join(_places(error)), name)
    return Failure(
        exception=None if exception is None else storable(exception, MAX_EXCEPTION),
        error_type=storable(name, MAX_TYPE),
        error_message=None if message is None else storable(message, MAX_MESSAGE),
        traceback=storable(trace, MAX_TRACEBACK),
    )


def saying(renderer: Renderer | None) -> Callable[[BaseException | None], str]:
    """What a line of the log says of an error: as `renderer` has it, or its repr without parameters."""
    if renderer is None:
        return said

    def say(error: BaseException | None) -> str:
        if error is None:
            return "None"
        rendered = _rendered(error, renderer)
        return _name(error) if rendered is None else storable(rendered, MAX_EXCEPTION)

    return say


def _name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")


def _rendered(error: BaseException, renderer: Renderer | None) -> str | None:
    try:
        rendered = repr(error) if renderer is None else renderer(error)
        return None if rendered is None else str(rendered)
    except ENDING:
        raise
    except BaseException as problem:  # noqa: BLE001 - the user's own code; what it says is kept instead
        return f"{_name(error)} ({type(problem).__name__} while rendering it)"


def _places(error: BaseException) -> Iterator[str]:
    """A traceback of places and types, first causes first: lines of code may hold what the renderer leaves out."""
    seen: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in seen:
        seen.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    for each in reversed(seen):
        for frame, line in traceback.walk_tb(each.__traceback__):
            code = frame.f_code
            yield f'  File "{code.co_filename}", line {line}, in {code.co_name}\n'
        yield f"{_name(each)}\n"

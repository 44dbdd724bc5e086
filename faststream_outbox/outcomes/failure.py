"""What counts as a failure, and an error as text that PostgreSQL is sure to store.

A dead letter must never fail to be written because of what the handler raised: exceptions whose
`repr` raises, NUL characters, lone surrogates, megabytes of text. It has no parameters of SQL statements in it, which
are the application's data. Used by the engines.
"""

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from faststream_outbox.sql.secrets import hide_parameters

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
    """The error as storable text; `renderer` may supply the `exception` part."""
    if error is None:
        return NO_FAILURE
    hide_parameters(error)
    name = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    try:
        rendered = repr(error) if renderer is None else renderer(error)
        exception = None if rendered is None else str(rendered)
    except ENDING:
        raise
    except BaseException as problem:  # noqa: BLE001 - the user's own code; what it says is kept instead
        exception = f"{name} ({type(problem).__name__} while rendering it)"
    return Failure(
        exception=None if exception is None else storable(exception, MAX_EXCEPTION),
        error_type=storable(name, MAX_TYPE),
        error_message=storable(_attempted(lambda: str(error), name), MAX_MESSAGE),
        traceback=storable(_attempted(lambda: "".join(traceback.format_exception(error)), name), MAX_TRACEBACK),
    )

"""A session that is closed with published messages and without a commit: the messages are gone, and nobody said so.

One warning at the line that opened the session, and only where it is certain that no exception was the reason. A
`with` block tells by what it passes to `__exit__`; that of an AsyncSession closes in a task of its own, so its
`__aexit__` is searched for among the tasks that wait. Where that cannot be seen, there is no warning. Called by
`after_commit` when a transaction ends.
"""

import asyncio
import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import AsyncGeneratorType, CodeType, FrameType
from typing import Any

import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, async_session
from sqlalchemy.orm import Session

from faststream_outbox.errors import OutboxWarning

MOST_TASKS = 1000
"""More tasks than this are not searched: a warning must not hold up the event loop."""

_OURS = tuple(str(Path(str(package)).parent) for package in (sqlalchemy.__file__, __file__))
_ASYNC_EXIT: CodeType = AsyncSession.__aexit__.__code__
_SYNC_EXIT: CodeType = Session.__exit__.__code__
_SYNC_CLOSE: CodeType = Session.close.__code__


def warn_of_lost_messages(session: Session) -> None:
    """Warn, if the session is being closed and not because of an exception."""
    line = _line_of(session)
    if line is None:
        return
    outer = async_session(session)
    begin, commit = ("with", "session.commit()") if outer is None else ("async with", "await session.commit()")
    warnings.warn_explicit(
        "A session was closed with published messages and without a commit: they are gone, with everything else "
        f"that it wrote. Write `{begin} session.begin():` around what belongs together, or `{commit}` at its end. "
        "To take it back on purpose, call rollback().",
        OutboxWarning,
        line.f_code.co_filename,
        line.f_lineno,
        module=line.f_globals.get("__name__"),
        registry=line.f_globals.setdefault("__warningregistry__", {}),
    )


def _line_of(session: Session) -> FrameType | None:
    """The frame that closes the session without an exception; None where that is not certain."""
    outer = async_session(session)
    if outer is None:
        return _closing_frame(session) if sys.exc_info()[0] is None else None
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return None
    if len(tasks) > MOST_TASKS:
        return None
    for task in tasks:
        before: FrameType | None = None
        for frame in _frames(task.get_coro()):
            if frame.f_code is _ASYNC_EXIT and frame.f_locals.get("self") is outer:
                return before if frame.f_locals.get("type_") is None else None
            before = frame
    return None


def _closing_frame(session: Session) -> FrameType | None:
    is_closing = False
    frame: FrameType | None = sys._getframe()
    while frame is not None and (is_closing is False or frame.f_code.co_filename.startswith(_OURS)):
        if frame.f_code in (_SYNC_CLOSE, _SYNC_EXIT) and frame.f_locals.get("self") is session:
            is_closing = True
        frame = frame.f_back
    return frame


def _frames(awaiting: Any) -> Iterator[FrameType]:
    """The frames of what waits for what, from a task's own coroutine inwards."""
    while awaiting is not None:
        frame = next((found for name in _FRAMES if (found := getattr(awaiting, name, None)) is not None), None)
        if frame is not None:
            yield frame
            awaiting = next((found for name in _AWAITS if (found := getattr(awaiting, name, None)) is not None), None)
        else:
            # `asend()` and `athrow()` do not show their generator.
            inner = gc.get_referents(awaiting) if type(awaiting).__name__.startswith("async_generator_a") else ()
            awaiting = next((found for found in inner if isinstance(found, AsyncGeneratorType)), None)


_FRAMES = ("cr_frame", "ag_frame", "gi_frame")
_AWAITS = ("cr_await", "ag_await", "gi_yieldfrom")

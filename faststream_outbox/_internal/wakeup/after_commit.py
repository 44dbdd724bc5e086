"""Doing something after a session's transaction has really committed, and warning where it was lost instead.

Hints are kept on the session and handed over by its after-commit event: the release of a savepoint does not count, the
end of the transaction forgets them, with a warning where nobody rolled it back. The hooks are set once for all
sessions, with the first that publishes, and cost a lookup in the session's `info` in a transaction that publishes
nothing. What is to be counted is kept in the same way, and forgotten with its savepoint. Called by `publish` and by the
log.

A session that is closed with published messages and without a commit has lost them, and nobody said so. There is one
warning at the line that opened the session, and only where it is certain that no exception was the reason. A `with`
block tells by what it passes to `__exit__`; that of an AsyncSession closes in a task of its own, so its `__aexit__` is
searched for among the tasks that wait. Where that cannot be seen, there is no warning.
"""

import asyncio
import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from time import monotonic
from types import AsyncGeneratorType, CodeType, FrameType
from typing import Any

import sqlalchemy
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_session
from sqlalchemy.orm import Session, SessionTransaction

from faststream_outbox._internal.wakeup.hint import Hint
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


logger = logging.getLogger("faststream_outbox")

_PENDING = "faststream_outbox.pending_hints"
_TAKEN_BACK = "faststream_outbox.savepoint_taken_back"
_CALLS = "faststream_outbox.calls_after_commit"

LATE_SECONDS = 0.5
"""A transaction that stayed open longer than this after publishing may lie below a claimer's floor."""

Tell = Callable[[Hint], None]
Pending = list[tuple[Tell, Hint, float]]
Calls = list[tuple[SessionTransaction, Callable[[], None]]]


def tell_after_commit(session: Session, tell: Tell, hints: list[Hint]) -> None:
    """Call `tell` with each hint once the session's current transaction has committed."""
    pending: Pending | None = session.info.get(_PENDING)
    if pending is None:
        pending = session.info[_PENDING] = []
        _listen()
    now = monotonic()
    pending.extend((tell, hint, now) for hint in hints)


def call_after_commit(session: Session, call: Callable[[], None]) -> None:
    """Call this once the session's transaction has committed; not at all if that, or its savepoint, is rolled back."""
    transaction = session.get_nested_transaction() or session.get_transaction()
    if transaction is None:
        call()
        return
    calls: Calls | None = session.info.get(_CALLS)
    if calls is None:
        calls = session.info[_CALLS] = []
        _listen()
    calls.append((transaction, call))


@cache
def _listen() -> None:
    # Not on each session: that would take longer than the rest of a publish.
    event.listen(Session, "after_commit", _hand_over)
    event.listen(Session, "after_rollback", _roll_back)
    event.listen(Session, "after_transaction_end", _forget)


def _hand_over(session: Session) -> None:
    calls: Calls | None = session.info.get(_CALLS)
    if calls and not session.in_nested_transaction():
        due, calls[:] = [call for _, call in calls], []
        for call in due:
            _safely(call)
    pending: Pending | None = session.info.get(_PENDING)
    # Also fired when a savepoint is released, while its transaction is still the current one.
    if not pending or session.in_nested_transaction():
        return
    reported, pending[:] = list(pending), []
    session.info.pop(_TAKEN_BACK, None)
    now = monotonic()
    for tell, hint, published in reported:
        passed = now - published
        if hint.due_in > 0 or passed > LATE_SECONDS:
            is_late = hint.scan or passed > LATE_SECONDS
            current = replace(hint, due_in=max(0.0, hint.due_in - passed), scan=is_late)
        else:
            current = hint
        _safely(partial(tell, current))


def _safely(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        # It is committed: the application must not take this for a failure of its own.
        logger.exception("A wake-up failed after a commit. The message is safe; workers find it by polling.")


def _roll_back(session: Session) -> None:
    _take_back(session)
    pending: Pending | None = session.info.get(_PENDING)
    if not pending:
        return
    if session.in_nested_transaction():
        # Which messages went with the savepoint is not known: all of them may have.
        session.info[_TAKEN_BACK] = True
    else:
        pending.clear()
        session.info.pop(_TAKEN_BACK, None)


def _take_back(session: Session) -> None:
    """Forget what was to be called of what was rolled back: the current savepoint, or the whole transaction."""
    calls: Calls | None = session.info.get(_CALLS)
    transaction = session.get_nested_transaction() or session.get_transaction()
    if calls and transaction is not None:
        calls[:] = [(within, call) for within, call in calls if not _is_within(within, transaction)]


def _is_within(inner: SessionTransaction | None, outer: SessionTransaction) -> bool:
    while inner is not None:
        if inner is outer:
            return True
        inner = inner.parent
    return False


def _forget(session: Session, transaction: SessionTransaction) -> None:
    calls: Calls | None = session.info.get(_CALLS)
    if calls:
        # What a savepoint held until its release belongs to what is around it.
        parent = transaction.parent
        kept = [(parent if within is transaction else within, call) for within, call in calls]
        calls[:] = [(within, call) for within, call in kept if within is not None]
    # Whatever its end was: what had committed was handed over before.
    pending = session.info.get(_PENDING)
    if pending and transaction.parent is None:
        pending.clear()
        if not session.info.pop(_TAKEN_BACK, False):
            warn_of_lost_messages(session)

"""Doing something after a session's transaction has really committed.

Hints are kept on the session and handed over by its after-commit event: the release of a savepoint
does not count, the end of the transaction forgets them, with a warning where nobody rolled it back. The hooks are
set once for all sessions, with the first that publishes, and cost a lookup in the session's `info` in a transaction
that publishes nothing. What is to be counted is kept in the same way, and forgotten with its savepoint. Called by
`publish` and by the log.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from time import monotonic

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox._internal.wakeup.uncommitted import warn_of_lost_messages

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

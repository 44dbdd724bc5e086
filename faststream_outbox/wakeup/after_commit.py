"""Doing something after a session's transaction has really committed.

Hints are kept on the session and handed over by its after-commit event: the release of a savepoint
does not count, the end of the transaction forgets them, with a warning where nobody rolled it back. The hooks are
set once for all sessions, with the first that publishes, and cost a look at the session's `info` in a transaction
that publishes nothing. Called by `publish`.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from time import monotonic

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from faststream_outbox.wakeup.hint import Hint
from faststream_outbox.wakeup.uncommitted import warn_of_lost_messages

logger = logging.getLogger("faststream_outbox")

_PENDING = "faststream_outbox.pending_hints"
_TAKEN_BACK = "faststream_outbox.savepoint_taken_back"

LATE_SECONDS = 0.5
"""A transaction that stayed open longer than this after publishing may lie below a claimer's floor."""

Tell = Callable[[Hint], None]
Pending = list[tuple[Tell, Hint, float]]


def tell_after_commit(session: Session, tell: Tell, hints: list[Hint]) -> None:
    """Call `tell` with each hint once the session's current transaction has committed."""
    pending: Pending | None = session.info.get(_PENDING)
    if pending is None:
        pending = session.info[_PENDING] = []
        _listen()
    now = monotonic()
    pending.extend((tell, hint, now) for hint in hints)


@cache
def _listen() -> None:
    # Not on each session: that would take longer than the rest of a publish.
    event.listen(Session, "after_commit", _hand_over)
    event.listen(Session, "after_rollback", _roll_back)
    event.listen(Session, "after_transaction_end", _forget)


def _hand_over(session: Session) -> None:
    pending: Pending | None = session.info.get(_PENDING)
    # Also fired when a savepoint is released, while its transaction is still the current one.
    if not pending or session.in_nested_transaction():
        return
    told, pending[:] = list(pending), []
    session.info.pop(_TAKEN_BACK, None)
    now = monotonic()
    for tell, hint, published in told:
        passed = now - published
        if hint.due_in > 0 or passed > LATE_SECONDS:
            is_late = hint.scan or passed > LATE_SECONDS
            hint = replace(hint, due_in=max(0.0, hint.due_in - passed), scan=is_late)  # noqa: PLW2901
        try:
            tell(hint)
        except Exception:
            # It is committed: the application must not take this for a failure of its own.
            logger.exception("A wake-up failed after a commit. The message is safe; workers find it by looking.")


def _roll_back(session: Session) -> None:
    pending: Pending | None = session.info.get(_PENDING)
    if not pending:
        return
    if session.in_nested_transaction():
        # Which messages went with the savepoint is not known: all of them may have.
        session.info[_TAKEN_BACK] = True
    else:
        pending.clear()
        session.info.pop(_TAKEN_BACK, None)


def _forget(session: Session, transaction: SessionTransaction) -> None:
    # Whatever its end was: what had committed was handed over before.
    pending = session.info.get(_PENDING)
    if pending and transaction.parent is None:
        pending.clear()
        if not session.info.pop(_TAKEN_BACK, False):
            warn_of_lost_messages(session)

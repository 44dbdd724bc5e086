"""The session that a receipt belongs to: whoever gets it may write with it, and neither commit nor roll back.

A commit half-way would part the receipt from the writes behind it; after a rollback the receipt would be gone and the
writes behind it would stay. The first is refused at once, the second when the inbox is about to commit. Used by both
forms of the inbox.
"""

from collections.abc import Callable

from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from faststream_outbox.errors import TransactionEnded

SESSION = "inbox_session"
"""Where a handler's session stands in FastStream's context."""

MISSING = (
    "InboxSession is the session of an inbox, and no inbox receives this message: give the broker or the router "
    "middlewares=[inbox.middleware], or put @inbox.once below @broker.subscriber(…)."
)
_COMMITTED = (
    "The session of an inbox is committed by the inbox, with the receipt, after the handler has returned: leave the "
    "commit out. For writes that stay whatever becomes of the message open a session of your own; for a part that may "
    "fail use `async with session.begin_nested()`."
)
ROLLED_BACK = (
    "The handler has rolled the session of the inbox back, and the receipt with it, so nothing was kept: raise an "
    "exception instead, and the message comes again. For a part that may fail use `async with session.begin_nested()`."
)
BROKEN = (
    "A statement of the handler failed and its error was caught, which leaves the transaction unable to commit: let "
    "the error pass, or run the statement in `async with session.begin_nested()`."
)


class Guard:
    """Watches over one session's transaction, from its beginning until the inbox ends it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._transaction: SessionTransaction | None = session.get_transaction()
        event.listen(session, "before_commit", self._refuse)
        self._release: Callable[[], None] | None = lambda: event.remove(session, "before_commit", self._refuse)

    def _refuse(self, session: Session) -> None:
        if session.get_nested_transaction() is None:
            raise TransactionEnded(_COMMITTED)

    def release(self) -> None:
        """Let the inbox end the transaction."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def check(self) -> None:
        """Refuse to commit what is not the transaction that the receipt was written in."""
        if self._transaction is None or self._session.get_transaction() is not self._transaction:
            raise TransactionEnded(ROLLED_BACK)
        if not self._session.is_active:
            raise TransactionEnded(BROKEN)

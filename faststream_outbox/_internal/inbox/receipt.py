"""What `receive` gives: whether a message is new, and the session for its effects.

Used by applications without FastStream, and by handlers' middleware.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox._internal.inbox.answer import Answer
from faststream_outbox.errors import SessionRequired

SessionT = TypeVar("SessionT", AsyncSession, Session)

_SKIPPED = (
    "The message was received before, and its effects are in the database: there is no session for it. "
    "Ask `if receipt.is_new:` first."
)


@dataclass(slots=True)
class BaseReceipt(Generic[SessionT]):
    """A message's receipt: new, or found."""

    is_new: bool
    """Whether this is the first delivery; if not, its effects are in the database already."""
    answer: Answer | None = None
    """What was answered to the first delivery, where that was kept; give one to a new receipt to have it kept."""
    _session: SessionT | None = None

    @property
    def session(self) -> SessionT:
        """The session whose writes commit together with the receipt; only where it is new."""
        if self._session is None:
            raise SessionRequired(_SKIPPED)
        return self._session


class Receipt(BaseReceipt[AsyncSession]):
    """With an AsyncSession."""

    __slots__ = ()


class SyncReceipt(BaseReceipt[Session]):
    """With a Session."""

    __slots__ = ()

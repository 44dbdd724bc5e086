"""One message of an inbox: what it is known by, its session, its answer, and the receipt that a handler gets.

A message is known by its consumer, its source and its id, checked before any SQL is sent; two deliveries of one draw
the same lock. Whoever gets the session may write with it, and neither commit nor roll back: a commit half-way would
part the receipt from the writes behind it and is refused at once; after a rollback the receipt would be gone and the
writes behind it would stay, which is refused when the inbox is about to commit. An answer is kept as bytes, with how to
read them. The options are checked where an inbox is made. Used by both forms of the inbox; receipts are for
applications too.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Generic, Literal, TypeVar

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from faststream_outbox._internal.envelope import checked_text
from faststream_outbox._internal.schema.tables import SOURCE_LENGTH
from faststream_outbox._internal.sql.inbox_rows import Kept
from faststream_outbox.errors import (
    InvalidMessage,
    InvalidMessageType,
    InvalidOption,
    InvalidOptionType,
    SessionRequired,
    TransactionEnded,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that can be given again."""

    body: bytes
    content_type: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def values(self) -> dict[str, Any]:
        """The parameters that keep it; headers that JSON does not know are kept as text."""
        headers = json.dumps(dict(self.headers), default=str) if self.headers else None
        return {"body": self.body, "content_type": self.content_type, "headers": headers}

    @classmethod
    def read(cls, row: Kept) -> "Answer":
        """The answer of a row."""
        return cls(bytes(row.body), row.content_type, json.loads(row.headers) if row.headers else {})


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


MOST_BYTES = 2500
"""What fits into an entry of the primary key's index."""


@dataclass(frozen=True, slots=True)
class Key:
    """One message of one source, for one consumer."""

    consumer: str
    source: str
    message_id: str

    @classmethod
    def of(cls, consumer: str, source: object, message_id: object) -> "Key":
        """The key of these, or an error that says which of them PostgreSQL would refuse."""
        # Numbers and UUIDs are ids as good as text, and have one text each.
        text = message_id if isinstance(message_id, str | bytes | None) else str(message_id)
        key = cls(consumer, checked_text(source, "source", length=SOURCE_LENGTH), checked_text(text, "message_id"))
        size = sum(len(part.encode()) for part in (key.consumer, key.source, key.message_id))
        if size > MOST_BYTES:
            msg = f"consumer, source and message_id have {size} bytes together; at most {MOST_BYTES} fit."
            raise InvalidMessage(msg)
        return key

    def values(self, table: str) -> dict[str, Any]:
        """The parameters of the inbox's statements, for the table of this name."""
        parts = (table, self.consumer, self.source, self.message_id)
        digest = blake2b(repr(parts).encode(), digest_size=8).digest()
        return {
            "lock": int.from_bytes(digest, signed=True),
            "consumer": self.consumer,
            "source": self.source,
            "message_id": self.message_id,
        }


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


OnConcurrent = Literal["wait", "retry"]
OfMessage = Callable[[Any], object]
KEEP = timedelta(days=7)


def check_engine(value: object, kind: type, other: str) -> None:
    """Refuse what is no engine of this kind."""
    if not isinstance(value, kind):
        msg = f"engine must be an object of {kind.__name__}, not {type(value).__name__}: {other}."
        raise InvalidOptionType(msg)


def checked_consumer(value: object) -> str:
    """`value` as the name of a consumer."""
    try:
        return checked_text(value, "consumer")
    except InvalidMessageType as error:
        raise InvalidOptionType(str(error)) from None
    except InvalidMessage as error:
        raise InvalidOption(str(error)) from None


def checked_keep(value: object) -> timedelta | None:
    """`value` as the time for which receipts stay; None is for ever."""
    if value is None:
        return None
    if not isinstance(value, timedelta):
        msg = f"keep must be a timedelta, as in keep=timedelta(days=7), or None for ever, not {value!r}."
        raise InvalidOptionType(msg)
    if value <= timedelta(0):
        msg = f"keep must be a positive time, not {value}: receipts that go at once protect from nothing."
        raise InvalidOption(msg)
    return value


def check_function(name: str, value: object) -> None:
    """Refuse what is neither None nor a function of a message."""
    if value is not None and not callable(value):
        msg = f"{name} must be a function of a message: {name}=lambda message: message.headers['id'], not {value!r}."
        raise InvalidOptionType(msg)

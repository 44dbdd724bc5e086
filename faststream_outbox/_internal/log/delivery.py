"""A delivery: one message of the log on its way through a group.

Holds the row and decodes it on demand. Handlers of the log's own API get its `message`; FastStream's subscribers and
`Outbox.deliveries` get the delivery itself and decide on it. Whoever runs its batch says with `batch_run` how it ends
in a handler's own transaction. Made by `reader`, by `member` of what
was read ahead, and by the log in memory.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol
from uuid import NAMESPACE_OID, UUID, uuid5

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.connections.caller import AnySession
from faststream_outbox._internal.envelope import read_headers
from faststream_outbox._internal.log.message import UNREADABLE, OutboxMessage, read_payload, shown_payload
from faststream_outbox._internal.log.sharing.slots import Cursor, key_of
from faststream_outbox._internal.outcomes.outcome import DONE, Dead, Outcome, Retry
from faststream_outbox._internal.sql.log_rows import ReadMessage, WaitingMessage


class BatchEnd(Protocol):
    """How the batch of a delivery ends in a handler's own transaction."""

    async def begin_within(self, session: AsyncSession) -> None:
        """Begin the transaction in which messages will be handled and finished, or raise `LeaseLost`."""

    async def settle_within(self, session: AnySession, deliveries: "Sequence[Delivery]") -> None:
        """Finish messages in that transaction, or raise `LeaseLost`."""

    async def commit(self, session: AsyncSession) -> None:
        """Commit it, or raise."""


class Delivery:
    """A message, how often it was tried, and what was decided about it."""

    __slots__ = (
        "_ahead",
        "_headers",
        "_row",
        "attempts",
        "batch_run",
        "decision",
        "error",
        "first_attempt_at",
        "is_running",
        "position",
        "queue",
        "slot",
        "tick",
        "uri",
    )

    def __init__(self, row: ReadMessage | WaitingMessage, topic: str) -> None:
        self._row = row
        self._headers: dict[str, Any] | None = None
        self._ahead: OutboxMessage | None = None
        self.tick: int = row.tick
        self.position: int = row.position
        self.uri: str = row.uri
        self.slot: int = row.slot
        self.queue: str = topic
        """The topic or the URI that its group reads."""
        self.attempts: int = 0
        """Failed attempts before this one."""
        self.first_attempt_at: datetime | None = None
        self.decision: Outcome | None = None
        self.error: BaseException | None = None
        self.batch_run: BatchEnd | None = None
        self.is_running: bool = False
        """Whether the start of its handler was reported, and not yet what became of it."""

    @classmethod
    def waiting(cls, row: WaitingMessage, topic: str) -> "Delivery":
        """One that was deferred."""
        delivery = cls(row, topic)
        delivery.attempts, delivery.first_attempt_at = row.attempts, row.first_attempt_at
        return delivery

    @property
    def cursor(self) -> Cursor:
        """The place behind it."""
        return Cursor(self.tick, self.position)

    @property
    def headers(self) -> dict[str, Any]:
        """The metadata."""
        headers = self._headers
        if headers is None:
            headers = self._headers = read_headers(self._row.metadata)
        return headers

    @property
    def is_left_out(self) -> bool:
        """Whether its content was left out, because it cannot be read."""
        return self._row.metadata is None

    @property
    def payload(self) -> bytes:
        """The payload as bytes; JSON as its text."""
        text = self._row.payload
        return text.encode() if text is not None else bytes(self._row.body or b"")

    @property
    def is_json(self) -> bool:
        """Whether the payload was published as a JSON value."""
        return self._row.payload is not None

    @property
    def created_at(self) -> datetime:
        """When it was published."""
        return self._row.created_at

    @property
    def message_id(self) -> UUID:
        """The event_id of the publisher, or an id made of the position: the same every time."""
        return self._row.event_id or uuid5(NAMESPACE_OID, f"outbox:{self.position}")

    @property
    def has_event_id(self) -> bool:
        """Whether its id is the publisher's own, and not made of a position that other logs have too."""
        return self._row.event_id is not None

    @property
    def key(self) -> str | None:
        """The key within the topic, if it has one."""
        return key_of(self.uri, self.queue)

    @property
    def attempts_count(self) -> int:
        """Failed attempts before this one, as a claim of a queue calls them."""
        return self.attempts

    @property
    def id(self) -> int:
        """The position."""
        return self.position

    @property
    def deliveries_count(self) -> int:
        """Attempts so far, this one included."""
        return self.attempts + 1

    @property
    def message(self) -> OutboxMessage:
        """The message; raises one of `UNREADABLE` where its payload is no JSON to Python."""
        ahead, self._ahead = self._ahead, None
        return ahead or self._message(read_payload)

    def read_ahead(self) -> Exception | None:
        """Read the message for the next who asks for it; the error where that cannot be done."""
        try:
            self._ahead = self._message(read_payload)
        except UNREADABLE as error:
            return error
        return None

    @property
    def shown(self) -> OutboxMessage:
        """The message, with its payload as text where it cannot be read."""
        return self._message(shown_payload)

    def _message(self, read: Callable[[str | None, bytes | None, Mapping[str, Any]], Any]) -> OutboxMessage:
        row = self._row
        metadata = dict(self.headers)
        payload = read(row.payload, row.body, metadata)
        return OutboxMessage(self.uri, payload, metadata, row.created_at, self.position, row.transaction_id, self.tick)

    def decide(self, outcome: Outcome) -> None:
        """Settle it so, unless that was decided already."""
        if self.decision is None:
            self.decision = outcome

    def undecide(self) -> None:
        """Forget what was decided with others of its batch: it is tried once more, alone."""
        self.decision = self.error = None

    def ack(self) -> None:
        """Handled."""
        self.decide(DONE)

    def nack(self, delay: float | None = None, *, counts: bool = True) -> None:
        """Failed: try again after `delay` seconds, or as the retry strategy says; its key waits for it."""
        self.decide(Retry(delay, self.error, counts))

    def park(self, error: BaseException | None = None) -> None:
        """Failed for good: defer it for an operator."""
        self.decide(Dead(error=error or self.error))

    async def __aenter__(self) -> OutboxMessage:
        return self.message

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool:
        """Handled if nothing was raised; an error is kept and tried again, and goes no further."""
        if exc_val is None:
            self.ack()
            return False
        if not isinstance(exc_val, Exception):
            return False
        self.error = exc_val
        self.decide(Retry(error=exc_val))
        return True

    def __repr__(self) -> str:
        return f"<Delivery {self.tick}:{self.position} of {self.uri!r}, attempt {self.deliveries_count}>"

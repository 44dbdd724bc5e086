"""A delivery: one message of the log in a group's hand.

Holds the row as it came from the driver and reads from it on demand. Handlers of the log's own API get
its `message`; FastStream's subscribers and `Outbox.deliveries` get the delivery itself and decide on it.
Made by readers, settled by them too.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, UUID, uuid5

from faststream_outbox.envelope import read_headers
from faststream_outbox.log.message import UNREADABLE, OutboxMessage, read_payload, shown_payload
from faststream_outbox.log.slots import key_of
from faststream_outbox.log.spans import Cursor
from faststream_outbox.outcomes.outcome import DONE, Dead, Outcome, Retry
from faststream_outbox.sql.wire import Row

if TYPE_CHECKING:
    from faststream_outbox.log.handling import Handling


class Delivery:
    """A message, how often it was tried, and what was decided about it."""

    __slots__ = (
        "_ahead",
        "_headers",
        "_row",
        "attempts",
        "decision",
        "error",
        "first_attempt_at",
        "handling",
        "is_running",
        "position",
        "queue",
        "slot",
        "tick",
        "uri",
    )

    def __init__(self, row: Row, topic: str) -> None:
        self._row = row
        self._headers: dict[str, Any] | None = None
        self._ahead: OutboxMessage | None = None
        self.tick: int = row[0]
        self.position: int = row[1]
        self.uri: str = row[2]
        self.slot: int = row[3]
        self.queue = topic
        """The topic or the URI that its group reads."""
        self.attempts: int = 0
        """Failed attempts before this one."""
        self.first_attempt_at: datetime | None = None
        self.decision: Outcome | None = None
        self.error: BaseException | None = None
        self.handling: Handling | None = None
        self.is_running = False
        """Whether it was told that its handler began, and not yet what became of it."""

    @classmethod
    def waiting(cls, row: Row, topic: str) -> "Delivery":
        """One that was set aside."""
        delivery = cls(row, topic)
        delivery.attempts, delivery.first_attempt_at = row[10], row[11]
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
            headers = self._headers = read_headers(self._row[6])
        return headers

    @property
    def payload(self) -> bytes:
        """The payload as bytes; JSON as its text."""
        text: str | None = self._row[4]
        body: bytes = text.encode() if text is not None else bytes(self._row[5])
        return body

    @property
    def is_json(self) -> bool:
        """Whether the payload was published as a JSON value."""
        return self._row[4] is not None

    @property
    def created_at(self) -> datetime:
        """When it was published."""
        moment: datetime = self._row[8]
        return moment

    @property
    def message_id(self) -> UUID:
        """The event_id of the publisher, or an id made of the position: the same every time."""
        event_id: UUID | None = self._row[7]
        return event_id or uuid5(NAMESPACE_OID, f"outbox:{self.position}")

    @property
    def has_event_id(self) -> bool:
        """Whether its id is the publisher's own, and not made of a position that other logs have too."""
        return self._row[7] is not None

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
        payload = read(row[4], row[5], metadata)
        return OutboxMessage(self.uri, payload, metadata, row[8], self.position, row[9], self.tick)

    def decide(self, outcome: Outcome) -> None:
        """Settle it so, unless that was decided already."""
        if self.decision is None:
            self.decision = outcome

    def ack(self) -> None:
        """Handled."""
        self.decide(DONE)

    def nack(self, delay: float | None = None, *, counts: bool = True) -> None:
        """Failed: try again after `delay` seconds, or as the retry strategy says; its key waits for it."""
        self.decide(Retry(delay, self.error, counts))

    def park(self, error: BaseException | None = None) -> None:
        """Failed for good: set it aside for an operator."""
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

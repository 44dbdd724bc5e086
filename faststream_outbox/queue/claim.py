"""A claim: one message in hand, under a lease that others respect while it lives.

Holds the row as it came from the driver and reads from it on demand, because most handlers need
only the body. Made by `claimer`, handed to handlers, ended by `settler`.
"""

from asyncio import Task
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from faststream_outbox.envelope import read_headers

if TYPE_CHECKING:
    from faststream_outbox.outcomes.outcome import Outcome
    from faststream_outbox.queue.worker import Worker
    from faststream_outbox.sql.wire import Row


class Claim:
    """A leased message. `deadline` and `renewed_at` are times of `clock`."""

    __slots__ = (
        "_headers",
        "_row",
        "acquired_token",
        "deadline",
        "decision",
        "duration",
        "error",
        "has_more",
        "id",
        "is_abandoned",
        "is_ending",
        "is_handed_over",
        "is_lost",
        "key",
        "priority",
        "queue",
        "renewed_at",
        "task",
        "was_started",
        "worker",
    )

    def __init__(self, row: "Row", token: UUID, worker: "Worker", claimed_at: float) -> None:
        self._row = row
        self._headers: dict[str, Any] | None = None
        self.id: int = row[0]
        self.queue: str = row[1]
        self.key: str | None = row[11]
        self.priority: int = row[12]
        self.has_more: bool = row[15] is not None
        self.acquired_token = token
        self.worker = worker
        self.renewed_at = claimed_at
        self.deadline = claimed_at + worker.options.lease_ttl_seconds
        self.is_lost = False
        self.is_abandoned = False
        self.is_ending = False
        self.is_handed_over = False
        self.was_started = False
        self.duration = 0.0
        self.task: Task[Any] | None = None
        self.decision: Outcome | None = None
        self.error: BaseException | None = None

    @property
    def payload(self) -> bytes:
        """The body."""
        payload: bytes = self._row[2]
        return payload

    @property
    def headers(self) -> dict[str, Any]:
        """The headers; empty where there are none."""
        headers = self._headers
        if headers is None:
            headers = self._headers = read_headers(self._row[3])
        return headers

    @property
    def attempts_count(self) -> int:
        """Attempts with a recorded outcome before this one."""
        count: int = self._row[4]
        return count

    @property
    def deliveries_count(self) -> int:
        """Claims so far, this one included."""
        count: int = self._row[5]
        return count

    @property
    def created_at(self) -> datetime:
        """When it was published."""
        moment: datetime = self._row[6]
        return moment

    @property
    def next_attempt_at(self) -> datetime:
        """When it fell due."""
        moment: datetime = self._row[7]
        return moment

    @property
    def first_attempt_at(self) -> datetime | None:
        """When the first attempt ended."""
        moment: datetime | None = self._row[8]
        return moment

    @property
    def last_attempt_at(self) -> datetime | None:
        """When the last attempt ended."""
        moment: datetime | None = self._row[9]
        return moment

    @property
    def timer_id(self) -> str | None:
        """The name that it was deduplicated by."""
        name: str | None = self._row[10]
        return name

    @property
    def message_id(self) -> UUID:
        """The message's own id: the same through retries, dead letters and replay."""
        value: UUID = self._row[13]
        return value

    @property
    def acquired_at(self) -> datetime:
        """When it was claimed, on the server's clock."""
        moment: datetime = self._row[14]
        return moment

    @property
    def is_leaving(self) -> bool:
        """Whether its row may be gone because we ended it ourselves."""
        return self.is_ending or self.is_handed_over

    def decide(self, outcome: "Outcome") -> None:
        """Settle it so, unless that was decided already."""
        if self.decision is None:
            self.decision = outcome

    def renewed(self, at: float) -> None:
        """The lease began anew."""
        self.renewed_at = at
        self.deadline = at + self.worker.options.lease_ttl_seconds

    def lose(self, *, cancel: bool) -> None:
        """Somebody else has the message now, or it is gone."""
        self.is_lost = True
        if cancel and self.task is not None:
            self.task.cancel("outbox lease lost")

    def __repr__(self) -> str:
        return f"<Claim {self.id} of {self.queue!r}, delivery {self.deliveries_count}>"

"""A claim: one message in flight, under a lease that others respect while it lives.

Holds the row that was claimed and reads from it on demand, because most handlers need only the body. Made by
`claimer` and `keyed`, handed to handlers, ended by `settler`.
"""

from asyncio import Task
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from faststream_outbox._internal.envelope import read_headers
from faststream_outbox._internal.outcomes.outcome import Outcome
from faststream_outbox._internal.queue import clock
from faststream_outbox._internal.sql.queue_rows import ClaimedOfKeyRow, ClaimedRow

if TYPE_CHECKING:
    from faststream_outbox._internal.queue.worker import Worker


class Claim:
    """A leased message. `deadline` and `renewed_at` are times of `clock`, `retried_at` is when a retry was sent."""

    __slots__ = (
        "_headers",
        "_row",
        "acquired_token",
        "claimed_at",
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
        "retried_at",
        "task",
        "was_started",
        "worker",
    )

    def __init__(self, row: ClaimedRow | ClaimedOfKeyRow, token: UUID, worker: "Worker", claimed_at: float) -> None:
        self._row = row
        self._headers: dict[str, Any] | None = None
        self.id: int = row.id
        self.queue: str = row.queue
        self.key: str | None = row.key
        self.priority: int = row.priority
        self.has_more: bool = row.next_id is not None
        self.acquired_token: UUID = token
        self.worker: Worker = worker
        self.claimed_at: float = claimed_at
        self.renewed_at: float = claimed_at
        self.deadline: float = claimed_at + worker.options.lease_ttl_seconds
        self.retried_at: float | None = None
        self.is_lost: bool = False
        self.is_abandoned: bool = False
        self.is_ending: bool = False
        self.is_handed_over: bool = False
        self.was_started: bool = False
        self.duration: float = 0.0
        self.task: Task[Any] | None = None
        self.decision: Outcome | None = None
        self.error: BaseException | None = None

    @property
    def payload(self) -> bytes:
        """The body."""
        return self._row.payload

    @property
    def headers(self) -> dict[str, Any]:
        """The headers; empty where there are none."""
        headers = self._headers
        if headers is None:
            headers = self._headers = read_headers(self._row.headers)
        return headers

    @property
    def attempts_count(self) -> int:
        """Attempts with a recorded outcome before this one."""
        return self._row.attempts_count

    @property
    def deliveries_count(self) -> int:
        """Claims so far, this one included."""
        return self._row.deliveries_count

    @property
    def created_at(self) -> datetime:
        """When it was published."""
        return self._row.created_at

    @property
    def next_attempt_at(self) -> datetime:
        """When it fell due."""
        return self._row.next_attempt_at

    @property
    def first_attempt_at(self) -> datetime | None:
        """When the first attempt ended."""
        return self._row.first_attempt_at

    @property
    def last_attempt_at(self) -> datetime | None:
        """When the last attempt ended."""
        return self._row.last_attempt_at

    @property
    def timer_id(self) -> str | None:
        """The name that it was deduplicated by."""
        return self._row.timer_id

    @property
    def message_id(self) -> UUID:
        """The message's own id: the same through retries, dead letters and replay."""
        return self._row.message_id

    @property
    def acquired_at(self) -> datetime:
        """When it was claimed, on the server's clock."""
        return self._row.acquired_at

    @property
    def is_leaving(self) -> bool:
        """Whether its row may be gone because we ended it ourselves."""
        return self.is_ending or self.is_handed_over

    def decide(self, outcome: Outcome) -> None:
        """Settle it with this outcome, unless another was decided on before."""
        if self.decision is None:
            self.decision = outcome

    @property
    def age(self) -> float:
        """Seconds since it was published: by the server's clock until it was claimed, by ours from then on."""
        return (self.acquired_at - self.created_at).total_seconds() + clock.now() - self.claimed_at

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

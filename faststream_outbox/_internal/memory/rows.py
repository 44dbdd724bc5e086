"""The rows of tables in memory, and the shapes in which statements return them.

A `MemoryRow` changes in place, as a row of the outbox does. The shapes are tuples with the columns of the statements on
PostgreSQL, in their order: the engines read both alike.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from faststream_outbox._internal.memory.clock import FAR
from faststream_outbox._internal.sql.queue_rows import ClaimedRow, UnprocessedRow


@dataclass(slots=True, kw_only=True, eq=False)
class MemoryRow:
    """A row of the outbox."""

    id: int
    queue: str
    payload: bytes
    headers: dict[str, Any] | None = None
    attempts_count: int = 0
    deliveries_count: int = 0
    created_at: datetime
    next_attempt_at: datetime
    first_attempt_at: datetime | None = None
    last_attempt_at: datetime | None = None
    acquired_at: datetime | None = None
    acquired_token: UUID | None = None
    timer_id: str | None = None
    key: str | None = None
    priority: int = 0
    message_id: UUID = field(default_factory=uuid4)

    def claimed(self, now: datetime, *, next_id: int | None = None) -> ClaimedRow:
        """The columns that a claim returns."""
        return ClaimedRow(
            self.id, self.queue, self.payload, self._headers(), self.attempts_count, self.deliveries_count,
            self.created_at, min(self.next_attempt_at, FAR), self.first_attempt_at, self.last_attempt_at, self.timer_id,
            self.key, self.priority, self.message_id, now, next_id,
        )  # fmt: skip

    def shown(self) -> UnprocessedRow:
        """The columns that are shown of what is not finished."""
        return UnprocessedRow(
            self.id, self.queue, self.payload, self._headers(), self.attempts_count, self.deliveries_count,
            self.created_at, min(self.next_attempt_at, FAR), self.first_attempt_at, self.last_attempt_at,
            self.acquired_at, self.acquired_token, self.timer_id, self.key, self.priority, self.message_id,
        )  # fmt: skip

    def _headers(self) -> str | None:
        return None if self.headers is None else json.dumps(self.headers)

    def is_free(self, now: datetime, ttl: float) -> bool:
        """Whether nobody's lease lives."""
        return self.acquired_at is None or self.acquired_at < now - timedelta(seconds=ttl)

    def is_active(self, now: datetime) -> bool:
        """Whether it holds a place in its key: due, or begun before."""
        return self.deliveries_count > 0 or self.last_attempt_at is not None or self.next_attempt_at <= now

    @property
    def was_due_at_once(self) -> bool:
        """Whether neither a timer nor a retry has put it off."""
        return self.timer_id is None and self.next_attempt_at <= self.created_at

    def release(self) -> None:
        """End the lease."""
        self.acquired_at = self.acquired_token = None

"""Tables in memory: their clock, their rows, and one place to ask them a statement by its name.

`answer` calls the method of a statement; `claiming` and `queues` have these methods. A `MemoryRow` changes in place, as
a row of the outbox does, and is returned in the shapes that statements return on PostgreSQL: the engines read both
alike. All tables of a test share the clock, so that time passes for all of them at once.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.schema.names import PAUSED
from faststream_outbox._internal.sql.queue_rows import ClaimedRow, UnprocessedRow

FAR = datetime(9998, 12, 31, tzinfo=UTC)
"""The latest time that is shown."""
NEVER = datetime.max.replace(tzinfo=UTC)
"""Infinity: when a pause or a parked message falls due."""


class MemoryClock:
    """The server's clock, which can be advanced."""

    def __init__(self) -> None:
        self._ahead = timedelta()

    def now(self) -> datetime:
        """What time it is there."""
        return datetime.now(UTC) + self._ahead

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        self._ahead += by


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
        columns = {**self._columns(), "acquired_at": now, "next_id": next_id}
        return ClaimedRow(*map(columns.__getitem__, ClaimedRow._fields))

    def shown(self) -> UnprocessedRow:
        """The columns that are shown of what is not finished."""
        return UnprocessedRow(*map(self._columns().__getitem__, UnprocessedRow._fields))

    def _columns(self) -> dict[str, Any]:
        """All of them, as a statement returns them."""
        headers = None if self.headers is None else json.dumps(self.headers)
        return {**self.values(), "headers": headers, "next_attempt_at": min(self.next_attempt_at, FAR)}

    def values(self) -> dict[str, Any]:
        """What it holds, by the names of its columns."""
        return {name: getattr(self, name) for name in self.__slots__}

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


class MemoryTables:
    """Rows and dead letters."""

    def __init__(self, clock: MemoryClock | None = None) -> None:
        self.rows: list[MemoryRow] = []
        self.dlq_rows: list[dict[str, Any]] = []
        self.clock: MemoryClock = clock or MemoryClock()
        self._ids = count(1)
        self._dead_ids = count(1)
        self._last: int | None = None

    def now(self) -> datetime:
        """The server's clock."""
        return self.clock.now()

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        self.clock.advance(by)

    def answer(self, name: str, values: Mapping[str, Any]) -> list[Row]:
        """The rows that the named statement returns."""
        method: Callable[[Mapping[str, Any], datetime], Iterable[Row]] = getattr(self, f"_{name}")
        return list(method(values, self.now()))

    def _of(self, queue: str, *, keyed: bool | None = None) -> list[MemoryRow]:
        rows = (row for row in self.rows if row.queue == queue)
        found = [row for row in rows if keyed is None or (row.key is not None) is keyed]
        return sorted(found, key=lambda row: (row.next_attempt_at, row.id))

    def is_paused(self, queue: str) -> bool:
        """Whether nobody may claim from the queue."""
        return any((row.queue, row.timer_id) == (PAUSED, queue) and row.acquired_token for row in self.rows)

    def _held(self, values: Mapping[str, Any]) -> list[tuple[int, MemoryRow]]:
        leases = {(row.id, row.acquired_token): row for row in self.rows if row.acquired_token is not None}
        asked = enumerate(zip(values["ids"], values["tokens"], strict=True))
        return [(place, leases[lease]) for place, lease in asked if lease in leases]

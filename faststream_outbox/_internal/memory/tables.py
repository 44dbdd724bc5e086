"""Tables in memory: rows, dead letters, and one place to ask them a statement by its name.

`answer` calls the method of a statement. `publishing`, `claiming`, `settling` and `dead_letters` have these methods,
each for some files of SQL; `queues` puts them together.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.memory.clock import MemoryClock
from faststream_outbox._internal.memory.rows import MemoryRow
from faststream_outbox._internal.schema.names import PAUSED


class MemoryTables:
    """Rows and dead letters."""

    def __init__(self, clock: MemoryClock | None = None) -> None:
        self.rows: list[MemoryRow] = []
        self.dlq_rows: list[dict[str, Any]] = []
        self.clock = clock or MemoryClock()
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

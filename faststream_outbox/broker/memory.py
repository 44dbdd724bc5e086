"""The tables in memory, for tests: the same named statements, answered by Python.

Claiming, leases, retries, timers, keys and dead letters are not written again for tests: the engine's
own loops and decisions run, and only its statements are answered here. One contract suite asks this
and PostgreSQL the same questions. Time can be advanced.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID, uuid4

from faststream_outbox.schema.names import PAUSED
from faststream_outbox.sql import Statement
from faststream_outbox.sql.wire import STATEMENT_TIMEOUT, Row, Wire

FAR = datetime(9998, 12, 31, tzinfo=UTC)
"""The latest time that is shown."""
NEVER = datetime.max.replace(tzinfo=UTC)
"""Infinity: when a pause or a parked message falls due."""


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

    def claimed(self, now: datetime, *, next_id: int | None = None) -> Row:
        """The columns that a claim returns."""
        return (*self.columns()[:10], self.timer_id, self.key, self.priority, self.message_id, now, next_id)

    def columns(self) -> Sequence[Any]:
        """The columns that a look returns."""
        headers = None if self.headers is None else json.dumps(self.headers)
        return (
            self.id, self.queue, self.payload, headers, self.attempts_count, self.deliveries_count, self.created_at,
            min(self.next_attempt_at, FAR), self.first_attempt_at, self.last_attempt_at, self.acquired_at,
            self.acquired_token, self.timer_id, self.key, self.priority, self.message_id,
        )  # fmt: skip

    def is_free(self, now: datetime, ttl: float) -> bool:
        """Whether nobody's lease lives."""
        return self.acquired_at is None or self.acquired_at < now - timedelta(seconds=ttl)

    def is_active(self, now: datetime) -> bool:
        """Whether it holds a place in its key: due, or begun before."""
        return self.deliveries_count > 0 or self.last_attempt_at is not None or self.next_attempt_at <= now

    def release(self) -> None:
        """End the lease."""
        self.acquired_at = self.acquired_token = None


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

    # publish.sql

    def _insert(self, values: Mapping[str, Any], now: datetime, timer_id: str | None = None) -> MemoryRow:
        headers = values["headers"]
        row = MemoryRow(
            id=next(self._ids),
            queue=values["queue"],
            payload=values["payload"],
            headers=None if headers is None else json.loads(headers),
            created_at=now,
            next_attempt_at=values["due_at"] or now + timedelta(seconds=values["due_in"]),
            key=values["key"],
            priority=values["priority"],
            timer_id=timer_id,
            message_id=UUID(values["message_id"]) if values["message_id"] else uuid4(),
        )
        self._last = row.id
        self.rows.append(row)
        return row

    def _publish_one(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(self._insert(values, now).id,)]

    def _publish_many(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(self._insert(one, now).id,) for one in _each(values)]

    def _publish_alike(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        alike = {name: values[name] for name in ("queue", "headers", "due_at", "due_in", "key", "priority")}
        return [
            (self._insert({**alike, "payload": body, "message_id": message_id}, now).id,)
            for body, message_id in zip(values["payloads"], values["message_ids"], strict=True)
        ]

    def _publish_new_timers(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return self._publish_timers({**values, "conflicts": ["ignore"] * len(values["timer_ids"])}, now)

    def _publish_timers(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for one in _each(values):
            timer = one["timer_id"]
            taken = next(
                (row for row in self.rows if timer and (row.queue, row.timer_id) == (one["queue"], timer)), None
            )
            if taken is None:
                row = self._insert(one, now, timer)
                yield row.id, row.queue, row.timer_id
            elif one["conflict"] != "ignore" and taken.acquired_token is None:
                due = one["due_at"] or now + timedelta(seconds=one["due_in"])
                if one["conflict"] == "replace" or due > taken.next_attempt_at:
                    self.rows.remove(taken)
                    self._insert(one, now, timer).id = taken.id
                yield taken.id, taken.queue, taken.timer_id

    def _notify(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return ()

    def _cancel_timer(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for row in list(self.rows):
            if (row.queue, row.timer_id) == (values["queue"], values["timer_id"]) and row.acquired_token is None:
                self.rows.remove(row)
                yield (row.id,)

    def _unprocessed(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        rows = sorted((row for row in self.rows if row.queue != PAUSED), key=lambda row: row.id)
        return [row.columns() for row in rows[: values["limit"]]]

    def _unprocessed_of_queue(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        rows = sorted(self._of(values["queue"]), key=lambda row: row.priority)[: values["limit"]]
        return [row.columns() for row in sorted(rows, key=lambda row: row.id)]

    # control.sql

    def _pause(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        known = [row for row in self.rows if (row.queue, row.timer_id) == (PAUSED, values["queue"])]
        if any(row.acquired_token for row in known):
            return ()
        if not known:
            place = {"queue": PAUSED, "timer_id": values["queue"], "payload": b""}
            known = [MemoryRow(id=next(self._ids), **place, created_at=now, next_attempt_at=NEVER)]
            self.rows += known
        known[0].acquired_token, known[0].acquired_at = uuid4(), now
        return [(known[0].id,)]

    def _resume(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        gone = [row for row in self.rows if (row.queue, row.timer_id) == (PAUSED, values["queue"])]
        self.rows[:] = [row for row in self.rows if row not in gone]
        return [(row.id,) for row in gone if row.acquired_token]

    def _paused(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return sorted(
            (row.timer_id,) for row in self.rows if row.queue == PAUSED and row.timer_id and row.acquired_token
        )

    def _known(self) -> set[str]:
        names = {row.queue for row in self.rows} | {str(letter["queue"]) for letter in self.dlq_rows}
        return (names | {str(row[0]) for row in self._paused({}, self.now())}) - {PAUSED}

    def _known_queue(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(1,)] if values["queue"] in self._known() else ()

    def _queues(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(queue,) for queue in sorted(self._known())]

    def _last_id(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(self._last, "outbox_id_seq", True)]

    def _ping(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(1,)]


def _each(values: Mapping[str, Sequence[Any]]) -> Iterable[dict[str, Any]]:
    """One mapping per message, of a statement whose parameters are arrays."""
    singular = {
        "queues": "queue", "payloads": "payload", "headers": "headers", "due_ats": "due_at", "due_ins": "due_in",
        "keys": "key", "priorities": "priority", "message_ids": "message_id", "timer_ids": "timer_id",
        "conflicts": "conflict",
    }  # fmt: skip
    names = [singular[name] for name in values]
    return [dict(zip(names, one, strict=True)) for one in zip(*values.values(), strict=True)]


class MemoryWire(Wire):
    """A connection to tables in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self.pooled = False
        self.timeout = STATEMENT_TIMEOUT

    @property
    def is_open(self) -> bool:
        """There is nothing to connect to."""
        return True

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """The rows that the statement returns."""
        # Others may run, as they do while a server answers.
        await asyncio.sleep(0)
        return self._tables.answer(statement.name, values)

    async def close(self) -> None:
        """Nothing is open."""

"""Publishing, timers and pauses on tables in memory: the statements of publish and control.sql."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.memory.clock import NEVER
from faststream_outbox._internal.memory.rows import MemoryRow
from faststream_outbox._internal.memory.tables import MemoryTables
from faststream_outbox._internal.schema.names import PAUSED
from faststream_outbox._internal.sql.rows import column


class PublishStatements(MemoryTables):
    """Tables that can be published to, and whose queues can be paused."""

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
                yield (row.key is not None and row.is_active(now),)

    def _unprocessed(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        rows = sorted((row for row in self.rows if row.queue != PAUSED), key=lambda row: row.id)
        return [row.shown() for row in rows[: values["limit"]]]

    def _unprocessed_of_queue(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        rows = sorted(self._of(values["queue"]), key=lambda row: row.priority)[: values["limit"]]
        return [row.shown() for row in sorted(rows, key=lambda row: row.id)]

    def _pause(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        known = [row for row in self.rows if (row.queue, row.timer_id) == (PAUSED, values["queue"])]
        if any(row.acquired_token for row in known):
            return ()
        if not known:
            place = {"queue": PAUSED, "timer_id": values["queue"], "payload": b""}
            known = [MemoryRow(id=next(self._ids), **place, created_at=now, next_attempt_at=NEVER)]
            self.rows += known
        mark = known[0]
        mark.acquired_token, mark.acquired_at = uuid4(), now
        return [(mark.id,)]

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
        return (names | {*column(self._paused({}, self.now()))}) - {PAUSED}

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

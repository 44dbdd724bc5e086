"""The queues in memory: every statement of the queue engine but claims, on one table and its dead letters.

Publishing, timers and pauses answer publish.sql and control.sql, settling settle.sql, dead letters dead.sql; `claiming`
has the rest. One contract suite asks this and PostgreSQL the same questions. Used by the client in memory.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.memory.claiming import ClaimStatements
from faststream_outbox._internal.memory.tables import NEVER, MemoryRow, MemoryTables
from faststream_outbox._internal.schema.names import PAUSED
from faststream_outbox._internal.sql.queue_rows import DeadLetterRow
from faststream_outbox._internal.sql.statements import column


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
            self.rows.extend(known)
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


class SettleStatements(MemoryTables):
    """Tables whose leased messages can be finished, put off, given back, buried and renewed."""

    def _lock(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(row.id,) for _, row in self._held(values)]

    def _settle_done(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for _, row in self._held(values):
            self.rows.remove(row)
            yield (row.id,)

    _settle_within = _settle_done

    def _settle_retry(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for place, row in self._held(values):
            attempt = values["attempts"][place]
            row.release()
            row.next_attempt_at = now + timedelta(seconds=values["delays"][place])
            row.attempts_count += attempt
            row.deliveries_count += attempt - 1
            row.first_attempt_at = row.first_attempt_at or now
            row.last_attempt_at = now
            yield row.id, row.next_attempt_at

    def _settle_release(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for place, row in self._held(values):
            row.release()
            row.deliveries_count -= values["uncounted"][place]
            yield (row.id,)

    def _settle_dead(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for place, row in self._held(values):
            self.rows.remove(row)
            letter = {
                **row.values(),
                "id": next(self._dead_ids),
                "original_id": row.id,
                "attempts_count": row.attempts_count + values["attempts"][place],
                "first_attempt_at": row.first_attempt_at or now,
                "last_attempt_at": now,
                "failed_at": now,
                "failure_reason": values["reasons"][place],
                "last_exception": values["exceptions"][place],
                "error_type": values["error_types"][place],
                "error_message": values["error_messages"][place],
                "traceback": values["tracebacks"][place],
            }
            self.dlq_rows.append({name: letter[name] for name in DeadLetterRow._fields})
            yield (row.id,)

    def _settle_apart(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for place, row in self._held(values):
            row.release()
            row.next_attempt_at, row.last_attempt_at = NEVER, now
            row.attempts_count += 1
            row.headers = (row.headers or {}) | {"x-outbox-failure": values["reasons"][place]}
            yield (row.id,)

    def _remains(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(row.id, row.acquired_token is not None) for row in self.rows if row.id in values["ids"]]

    def _renew(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for place, row in self._held(values):
            has_run_out = row.key is not None and row.is_free(now, values["ttls"][place])
            row.acquired_at = row.acquired_at if has_run_out else now
            yield row.id, not has_run_out, has_run_out


Letter = dict[str, Any]


class Failed(NamedTuple):
    """How a message failed; dead letters that failed alike are counted together."""

    queue: str
    failure_reason: str
    error_type: str | None

    @property
    def order(self) -> tuple[str, str, str]:
        """As PostgreSQL sorts them: what has no type comes last."""
        return self.queue, self.failure_reason, self.error_type or "\U0010ffff"


class DeadLetterStatements(MemoryTables):
    """Tables whose dead letters can be looked at, changed and put back."""

    def _frontier(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(max((letter["id"] for letter in self.dlq_rows), default=0),)]

    def _chosen(self, values: Mapping[str, Any]) -> list[Letter]:
        frontier = values.get("frontier")
        return [
            letter
            for letter in self.dlq_rows
            if (frontier is None or letter["id"] <= frontier)
            and (values["ids"] is None or letter["id"] in values["ids"])
            and (values["queue"] is None or letter["queue"] == values["queue"])
            and (values["key"] is None or letter["key"] == values["key"])
            and (values["reason"] is None or letter["failure_reason"] == values["reason"])
            and (values["error_type"] is None or letter["error_type"] == values["error_type"])
            and (values["since"] is None or letter["failed_at"] >= values["since"])
            and (values["until"] is None or letter["failed_at"] < values["until"])
        ]

    def _count_dead(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(len(self._chosen(values)),)]

    def _highest_dead(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        # No id is ever behind the last one drawn: these tables are nobody's backup.
        return [(max((letter["original_id"] for letter in self._chosen(values)), default=None), None, None, False)]

    def _list_dead(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        found = [letter for letter in self._chosen(values) if letter["id"] < values["before"]]
        for letter in sorted(found, key=lambda letter: -letter["id"])[: values["limit"]]:
            headers = None if letter["headers"] is None else json.dumps(letter["headers"])
            yield [headers if name == "headers" else letter[name] for name in DeadLetterRow._fields]

    def _group_dead(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return _grouped(letter for letter in self.dlq_rows if values["queue"] in (None, letter["queue"]))

    def _group_selected(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return _grouped(self._chosen(values))

    def _replay(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        after = (values["after_original"] or 0, values["after_id"] or 0)
        found = [(letter["original_id"], letter["id"], letter) for letter in self._chosen(values)]
        for _, _, letter in sorted(each for each in found if each[:2] > after)[: values["slice"]]:
            is_back = self._put_back(letter, now)
            keyed = letter["key"] is not None
            yield letter["id"], letter["original_id"], letter["queue"], keyed, letter["priority"], is_back

    def _put_back(self, letter: Letter, now: datetime) -> bool:
        timer = (letter["queue"], letter["timer_id"])
        for row in self.rows:
            is_taken = letter["timer_id"] is not None and (row.queue, row.timer_id) == timer
            if is_taken or row.id == letter["original_id"]:
                return False
        same = ("message_id", "queue", "payload", "headers", "key", "priority", "timer_id", "created_at")
        fields = {name: letter[name] for name in same}
        self.rows.append(MemoryRow(id=letter["original_id"], next_attempt_at=now, **fields))
        self.dlq_rows.remove(letter)
        return True

    def _edit_dead(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for letter in self.dlq_rows:
            if letter["id"] == values["id"]:
                if values["payload"] is not None:
                    letter["payload"] = values["payload"]
                if values["headers"] is not None:
                    letter["headers"] = json.loads(values["headers"])
                yield (letter["id"],)

    def _purge_dead(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for letter in sorted(self._chosen(values), key=lambda letter: letter["id"])[: values["slice"]]:
            self.dlq_rows.remove(letter)
            yield letter["queue"], letter["key"] is not None


def _grouped(letters: Iterable[Letter]) -> list[Row]:
    alike: dict[Failed, list[datetime]] = {}
    for letter in letters:
        failed = Failed(letter["queue"], letter["failure_reason"], letter["error_type"])
        alike.setdefault(failed, []).append(letter["failed_at"])
    ordered = sorted(alike, key=lambda failed: (-len(alike[failed]), *failed.order))
    return [(*failed, len(alike[failed]), min(alike[failed]), max(alike[failed])) for failed in ordered]


class MemoryQueues(PublishStatements, ClaimStatements, SettleStatements, DeadLetterStatements):
    """The rows of an outbox, and its dead letters."""

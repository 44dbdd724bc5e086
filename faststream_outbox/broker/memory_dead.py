"""Dead letters on tables in memory: the answers to the statements of dead.sql, for `DeadLetters`."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from faststream_outbox.broker.memory import MemoryRow
from faststream_outbox.broker.memory_claims import ClaimableTables
from faststream_outbox.sql.wire import Row

Letter = dict[str, Any]
COLUMNS = (
    "id", "original_id", "message_id", "queue", "payload", "headers", "key", "priority", "timer_id", "attempts_count",
    "deliveries_count", "created_at", "first_attempt_at", "last_attempt_at", "failed_at", "failure_reason",
    "last_exception", "error_type", "error_message", "traceback",
)  # fmt: skip


class BuriedTables(ClaimableTables):
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
            yield [headers if name == "headers" else letter[name] for name in COLUMNS]

    def _group_dead(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        alike: dict[tuple[str, str, str | None], list[datetime]] = {}
        for letter in self.dlq_rows:
            if values["queue"] in (None, letter["queue"]):
                kind = (letter["queue"], letter["failure_reason"], letter["error_type"])
                alike.setdefault(kind, []).append(letter["failed_at"])
        # As PostgreSQL sorts them: what has no type comes last.
        ordered = sorted(alike.items(), key=lambda item: (-len(item[1]), *item[0][:2], item[0][2] or "\U0010ffff"))
        return [(*kind, len(times), min(times), max(times)) for kind, times in ordered]

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
            yield (letter["id"],)

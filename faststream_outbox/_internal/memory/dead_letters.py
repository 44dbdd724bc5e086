"""Dead letters on tables in memory: the statements of dead.sql."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.memory.rows import MemoryRow
from faststream_outbox._internal.memory.tables import MemoryTables

Letter = dict[str, Any]
COLUMNS = (
    "id", "original_id", "message_id", "queue", "payload", "headers", "key", "priority", "timer_id", "attempts_count",
    "deliveries_count", "created_at", "first_attempt_at", "last_attempt_at", "failed_at", "failure_reason",
    "last_exception", "error_type", "error_message", "traceback",
)  # fmt: skip


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
            yield [headers if name == "headers" else letter[name] for name in COLUMNS]

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

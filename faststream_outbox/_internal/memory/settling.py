"""Settling on tables in memory: the statements of settle.sql."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.memory.clock import NEVER
from faststream_outbox._internal.memory.tables import MemoryTables


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
            self.dlq_rows.append(
                {
                    "id": next(self._dead_ids),
                    "original_id": row.id,
                    "message_id": row.message_id,
                    "queue": row.queue,
                    "payload": row.payload,
                    "headers": row.headers,
                    "key": row.key,
                    "priority": row.priority,
                    "timer_id": row.timer_id,
                    "attempts_count": row.attempts_count + values["attempts"][place],
                    "deliveries_count": row.deliveries_count,
                    "created_at": row.created_at,
                    "first_attempt_at": row.first_attempt_at or now,
                    "last_attempt_at": now,
                    "failed_at": now,
                    "failure_reason": values["reasons"][place],
                    "last_exception": values["exceptions"][place],
                    "error_type": values["error_types"][place],
                    "error_message": values["error_messages"][place],
                    "traceback": values["tracebacks"][place],
                }
            )
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

"""Claiming on tables in memory: the statements of claim, keys and scan.sql.

And what handling at once asks of the tables instead: which messages must wait, and which nobody has begun.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.memory.tables import NEVER, MemoryRow, MemoryTables
from faststream_outbox._internal.schema.names import PAUSED

LOOK_AHEAD = 8
"""Messages of a key that a claim looks at beyond the run that it takes."""


class ClaimStatements(MemoryTables):
    """Tables that workers can claim from."""

    def _claim(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        taken: list[MemoryRow] = []
        for queue, priority, floor_at, floor_id, quota, ttl in zip(
            values["queues"], values["priorities"], values["floor_ats"], values["floor_ids"],
            values["quotas"], values["ttls"], strict=True,
        ):  # fmt: skip
            if self.is_paused(queue):
                continue
            above = self._above(queue, priority, floor_at, floor_id, now, keyed=False)
            free = [row for row in above if self._is_free(row, values, ttl, now)]
            taken += [row for row in free if row not in taken][:quota]
        for row in taken:
            self._claimed(row, values)
        return [row.claimed(now) for row in taken] or [(*(None,) * 14, now, None)]

    def _find_lanes(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        places: list[int] = []
        asked = zip(
            values["queues"], values["priorities"], values["keyed"], values["floor_ats"], values["floor_ids"],
            strict=True,
        )  # fmt: skip
        for place, (queue, priority, keyed, floor_at, floor_id) in enumerate(asked, start=1):
            above = self._above(queue, priority, floor_at, floor_id, now, keyed=keyed)
            has_some = any(keyed or self._is_free(row, values, values["ttl"], now) for row in above)
            if has_some and not self.is_paused(queue):
                places.append(place)
        return [(now, place) for place in places] or [(now, None)]

    def _is_free(self, row: MemoryRow, values: Mapping[str, Any], ttl: float, now: datetime) -> bool:
        return row.is_free(now, ttl) or row.acquired_token in values["unheard"]

    def _claimed(self, row: MemoryRow, values: Mapping[str, Any]) -> None:
        was_delivered = row.acquired_token not in values["unheard"]
        self.lease(row, values["token"])
        row.deliveries_count -= not was_delivered

    def _claim_found(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for number, queue, ttl in zip(values["ids"], values["queues"], values["ttls"], strict=True):
            for row in self._of(queue, keyed=False):
                is_due = row.next_attempt_at <= now and not self.is_paused(queue)
                if row.id == number and is_due and self._is_free(row, values, ttl, now):
                    self._claimed(row, values)
                    yield row.claimed(now)

    def _claimable(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        asked = zip(
            values["queues"], values["priorities"], values["from_ats"], values["from_ids"],
            values["to_ats"], values["to_ids"], values["ttls"], strict=True,
        )  # fmt: skip
        for place, (queue, priority, from_at, from_id, to_at, to_id, ttl) in enumerate(asked, start=1):
            above = [] if self.is_paused(queue) else self._above(queue, priority, from_at, from_id, now, keyed=False)
            top = (to_at or NEVER, to_id)
            free = [row for row in above if self._is_free(row, values, ttl, now)]
            below = [row for row in free if (row.next_attempt_at, row.id) <= top]
            yield from ((place, row.id, row.next_attempt_at) for row in below[: values["most"]])

    def _head_of_key(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        rows = [row for row in self._of(values["queue"]) if row.key == values["key"] and row.is_active(now)]
        return [(row.id,) for row in sorted(rows, key=lambda row: row.id)[:1]]

    def _exists(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        return [(row.id,) for row in self.rows if row.id == values["id"]]

    def _set_apart(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for row in self.rows:
            if row.id == values["id"] and self._is_free(row, values, values["ttl"], now):
                row.release()
                row.next_attempt_at, row.last_attempt_at = NEVER, now
                if values["reason"] is not None:
                    row.headers = (row.headers or {}) | {"x-outbox-failure": values["reason"]}
                yield (row.id,)

    def holds(self, row: MemoryRow, among: Sequence[MemoryRow], *, held_by_dead: bool) -> bool:
        """Whether a message must wait, due or not: for its queue, or for another one of its key that is not `among`."""
        if self.is_paused(row.queue):
            return True
        if row.key is None:
            return False
        now, place = self.now(), (row.queue, row.key)
        if held_by_dead and any((letter["queue"], letter["key"]) == place for letter in self.dlq_rows):
            return True
        return any(
            (other.queue, other.key) == place and other.id < row.id and other not in among and other.is_active(now)
            for other in self.rows
        )

    def unbegun(self, queue: str | None = None, key: str | None = None) -> list[MemoryRow]:
        """Messages that nobody has had in flight: all of them, or those of one key."""
        rows = [row for row in self.rows if queue is None or (row.queue, row.key) == (queue, key)]
        free = [row for row in rows if row.acquired_token is None and row.last_attempt_at is None]
        found = [row for row in free if row.deliveries_count == 0 and row.queue != PAUSED]
        return sorted(found, key=lambda row: row.id)

    def lease(self, row: MemoryRow, token: Any) -> None:
        """Take a lease."""
        row.acquired_token, row.acquired_at = token, self.now()
        row.deliveries_count += 1

    def _above(
        self,
        queue: str,
        priority: int,
        floor_at: datetime | None,
        floor_id: int,
        now: datetime,
        *,
        keyed: bool,
    ) -> list[MemoryRow]:
        floor = None if floor_at is None else (floor_at, floor_id)
        return [
            row
            for row in self._of(queue, keyed=keyed)
            if row.priority == priority
            and row.next_attempt_at <= now
            and (floor is None or (row.next_attempt_at, row.id) > floor)
        ]

    def _claim_keys(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for queue, key, run, ttl, held_by_dead in zip(
            values["queues"], values["keys"], values["runs"], values["ttls"], values["held_by_dead"], strict=True
        ):
            dead = held_by_dead and self._has_dead(queue, key)
            of_key = sorted((row for row in self._of(queue) if row.key == key), key=lambda row: row.id)
            active = [row for row in of_key if row.is_active(now)]
            if dead or self.is_paused(queue) or not all(self._is_free(row, values, ttl, now) for row in of_key):
                continue
            ready: list[MemoryRow] = []
            for row in active[:run]:
                if row.next_attempt_at > now:
                    break
                ready.append(row)
            left = [row for row in of_key if row.acquired_token not in (None, *values["unheard"])]
            if ready and not all(row in ready for row in left):
                for row in left:
                    row.release()
                yield (None, queue, *(None,) * 9, key, *(None,) * 5, False, None)
                continue
            at_once = [row.id for row in active if row.was_due_at_once]
            first = at_once[0] if at_once else None
            more = len(active) - max(0, len(at_once) - run - LOOK_AHEAD) - len(ready)
            for row in ready:
                self._claimed(row, values)
                yield (*row.claimed(now, next_id=active[run].id if len(active) > run else None), first, False, more)

    def _overtaken(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        asked = zip(values["queues"], values["keys"], values["firsts"], strict=True)
        for place, (queue, key, first) in enumerate(asked, start=1):
            head = self._head(queue, key, now)
            if head is not None and head.id < first:
                yield (place,)

    def _drawn_ids(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        # Here one statement runs after another: nothing appears late.
        return []

    def _find_keys(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for queue, priority, floor_at, floor_id, quota in zip(
            values["queues"], values["priorities"], values["floor_ats"], values["floor_ids"],
            values["quotas"], strict=True,
        ):  # fmt: skip
            rows = self._above(queue, priority, floor_at, floor_id, now, keyed=True)[:quota]
            for row in rows:
                yield queue, priority, row.key, row.next_attempt_at, row.id, now
            if not rows:
                yield queue, priority, None, None, None, now

    def _claimable_keys(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        asked = zip(values["queues"], values["priorities"], values["ttls"], values["held_by_dead"], strict=True)
        for place, (queue, priority, ttl, held_by_dead) in enumerate(asked, start=1):
            due = [] if self.is_paused(queue) else self._above(queue, priority, None, 0, now, keyed=True)
            seen = due[: values["most"]]
            if seen:
                yield place, None, None, len(seen) >= values["most"], None
            for key in dict.fromkeys(row.key for row in seen if row.key and self._is_free(row, values, ttl, now)):
                head = self._head(queue, key, now)
                if self._is_claimable(head, values, ttl, now) and not (held_by_dead and self._has_dead(queue, key)):
                    yield place, key, head.priority if head else None, False, head.id if head else None

    def _head(self, queue: str, key: str, now: datetime) -> MemoryRow | None:
        active = (row for row in self._of(queue) if row.key == key and row.is_active(now))
        return min(active, key=lambda row: row.id, default=None)

    def _is_claimable(self, head: MemoryRow | None, values: Mapping[str, Any], ttl: float, now: datetime) -> bool:
        return head is not None and head.next_attempt_at <= now and self._is_free(head, values, ttl, now)

    def _has_dead(self, queue: str, key: str) -> bool:
        return any((dead["queue"], dead["key"]) == (queue, key) for dead in self.dlq_rows)

    def _walk_keys(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        queue = values["queue"]
        if self.is_paused(queue):
            return
        keys = {row.key for row in self._of(queue, keyed=True) if row.key and row.key > values["after"]}
        for key in sorted(keys)[: values["keys"]]:
            head = self._head(queue, key, now)
            is_held = values["held_by_dead"] and self._has_dead(queue, key)
            is_claimable = self._is_claimable(head, values, values["ttl"], now) and not is_held
            yield key, is_claimable, *((None, None) if head is None else (head.priority, head.id))

    def _survey(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        rows = [row for row in self.rows if row.queue in values["queues"]]
        return sorted({(row.queue, row.key is not None, row.priority) for row in rows})

    def _next_due(self, values: Mapping[str, Any], now: datetime) -> Iterable[Row]:
        for queue, priority, keyed, floor_at in zip(
            values["queues"], values["priorities"], values["keyed"], values["floor_ats"], strict=True
        ):
            for row in self._of(queue, keyed=keyed):
                if (
                    row.priority == priority
                    and (floor_at is None or row.next_attempt_at > floor_at)
                    and row.next_attempt_at < NEVER
                ):
                    yield queue, priority, keyed, (row.next_attempt_at - now).total_seconds()
                    break

"""Claims messages with keys: candidate keys are found first, and then claimed in runs.

A claim of several keys that failed is tried again key by key, and message by message, so that what
cannot be fetched is found out and holds up only its own key. Used by `claimer`.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from faststream_outbox.queue.asking import Asking, Open
from faststream_outbox.queue.claim import Claim
from faststream_outbox.queue.culprit import doubt_of_key
from faststream_outbox.queue.intake import Intake
from faststream_outbox.queue.keys import Key
from faststream_outbox.queue.lane import NO_LIMIT, Lane, places
from faststream_outbox.queue.worker import Worker
from faststream_outbox.sql.wire import Row

KEY_WINDOW = 500

Told = Callable[[Worker, str, int], None]
Wanted = dict[Key, tuple[Worker, int, int]]
"""For each key: who wants it, how many of its messages, and its priority."""


class KeyedClaims:
    """The claimer's hand for keys."""

    def __init__(self, asking: Asking, told: Told) -> None:
        self._asking = asking
        self._told = told
        self._most = NO_LIMIT
        self._is_lone_turn = False

    async def step(self, open_: Open, now: float) -> bool:
        self._is_lone_turn = not self._is_lone_turn
        for worker, intake in open_.items():
            if intake.suspects and (self._is_lone_turn or not intake.keys):
                key = next(iter(intake.suspects))
                await self._claim_keys(open_, {key: (worker, 1, intake.suspects[key])}, [None])
                return True
        wanted: Wanted = {}
        nexts: list[int | None] = []
        for worker, intake in open_.items():
            room = min(worker.room, self._most)
            if keys := intake.keys.take(room):
                run = max(1, min(room // len(keys), worker.longest_run))
                new = [key for key in keys if key not in wanted]
                wanted |= {key: (worker, run, keys[key]) for key in new}
                nexts += [intake.keys.next_of(key) for key in new]
        if wanted:
            await self._claim_keys(open_, wanted, nexts)
        return bool(wanted)

    async def find(self, open_: Open, now: float) -> bool:
        # What is known is claimed before more is looked for: a deep key need not be read to its end first.
        if any(intake.keys for intake in open_.values()):
            return False
        for intake in open_.values():
            if lanes := intake.wet(keyed=True):
                await self._find_keys(intake, lanes)
                return True
        return False

    async def _claim_keys(self, open_: Open, wanted: Wanted, nexts: list[int | None]) -> None:
        token = uuid4()
        values = {
            "queues": [queue for queue, _ in wanted],
            "keys": [key for _, key in wanted],
            "runs": [run for _, run, _ in wanted.values()],
            "ttls": [worker.options.lease_ttl_seconds for worker, *_ in wanted.values()],
            "nexts": nexts,
            "held_by_dead": [worker.options.on_dead == "block" for worker, *_ in wanted.values()],
            "token": token,
        }
        try:
            rows, began, took = await self._asking.fetch("claim_keys", values)
        except Exception as error:
            self._claim_of_keys_failed(open_, wanted, error)
            raise
        if self._asking.is_quick(took):
            self._most = min(2 * self._most, NO_LIMIT)
        self._asking.arrived(row[0] for row in rows)
        runs: dict[Key, list[Row]] = {}
        for row in rows:
            runs.setdefault((row[1], row[11]), []).append(row)
        for key, (worker, _, priority) in wanted.items():
            claimed = runs.get(key)
            open_[worker].cleared(key)
            if claimed and claimed[0][0] is None:
                open_[worker].contested(key, priority, began + took)
                continue
            open_[worker].decided(key)
            if claimed:
                claimed.sort(key=_id_order)
                open_[worker].keys.hold(key, len(claimed), claimed[0][15])
                self._told(worker, key[0], len(claimed))
                worker.receive_run([Claim(row, token, worker, self._asking.sent_at) for row in claimed])

    def _claim_of_keys_failed(self, open_: Open, wanted: Wanted, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        asked = sum(run for _, run, _ in wanted.values())
        self._most = max(1, min(asked, self._most) // 2)
        for key, (worker, run, priority) in wanted.items():
            is_alone = len(wanted) == 1 and run == 1
            open_[worker].suspect(key, priority, now, alone=is_alone)
            if is_alone:
                self._asking.suspect(doubt_of_key(*key, worker.options.lease_ttl_seconds, error))

    async def _find_keys(self, intake: Intake, lanes: list[Lane]) -> None:
        values = places(lanes) | {"quotas": [KEY_WINDOW] * len(lanes)}
        try:
            rows, _, _ = await self._asking.fetch("find_keys", values)
        except BaseException:
            for lane in lanes:
                lane.interrupted()
            raise
        seen: dict[tuple[str, int], list[Row]] = {}
        for row in rows:
            seen.setdefault((row[0], row[1]), []).append(row)
        for lane in lanes:
            page = seen[lane.queue, lane.priority]
            keys = [row for row in page if row[2] is not None]
            for row in keys:
                intake.found_key((lane.queue, row[2]), lane.priority)
            last = (keys[-1][3], keys[-1][4]) if keys else None
            lane.looked(last, page[0][5], full=len(keys) >= KEY_WINDOW)


def _id_order(row: Row) -> Any:
    return row[0]

"""Claims for every worker of the process, on one connection, one statement at a time.

Asks only for lanes that may have something, only as much as the workers have room for, and sleeps
until a hint, the next due message or the next look from the beginning. Keyless messages are claimed
straight from the index; for those with keys, candidate keys are found first and then claimed in runs.
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from faststream_outbox.events import Events
from faststream_outbox.events import table as told
from faststream_outbox.queue.claim import Claim
from faststream_outbox.queue.intake import Intake, LaneName
from faststream_outbox.queue.keys import Key
from faststream_outbox.queue.lane import Lane, shares
from faststream_outbox.queue.worker import Worker
from faststream_outbox.service import pause_after
from faststream_outbox.sql import Statements
from faststream_outbox.sql.wire import Row, Wire
from faststream_outbox.wakeup.hint import Hint

KEY_WINDOW = 500
KEYS_PER_WALK = 500


class Claimer:
    """The one task that claims."""

    def __init__(self, wire: Wire, sql: Statements, events: Events) -> None:
        self._wire = wire
        self._sql = sql
        self._events = events
        self._wake = asyncio.Event()
        self._workers: dict[Worker, Intake] = {}
        self._is_keyed_turn = False
        self._turn = 0
        self._failures = 0
        self._failing_since = 0.0
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, worker: Worker) -> Intake:
        """Claim for this worker too."""
        intake = self._workers[worker] = Intake(worker.queues, worker.options)
        self.wake()
        return intake

    async def remove(self, worker: Worker) -> None:
        """Claim no more for this worker; returns when no claim of its is under way."""
        self._workers.pop(worker, None)
        self.wake()
        await self._idle.wait()

    def wake(self) -> None:
        """Look again: there may be room, or work."""
        self._wake.set()

    def hint(self, hint: Hint) -> None:
        """There may be work in a queue."""
        now = asyncio.get_running_loop().time()
        for intake in self._workers.values():
            intake.hint(hint, now)
        self._wake.set()

    async def run(self) -> None:
        """Claim until cancelled."""
        try:
            while True:
                self._wake.clear()
                self._idle.clear()
                try:
                    worked = await self._step()
                except Exception as error:  # noqa: BLE001 - told, and tried again
                    await self._failed(error)
                    continue
                self._idle.set()
                if not worked:
                    await self._sleep()
        finally:
            self._idle.set()

    async def _failed(self, error: Exception) -> None:
        self._idle.set()
        now = asyncio.get_running_loop().time()
        self._failures += 1
        if self._failures == 1:
            self._failing_since = now
            self._events.emit(told.ConnectionLost("claim", error))
        for intake in self._workers.values():
            # What the failed statement leased, if it did, is found again by a look from the beginning.
            intake.scan_at = min(intake.scan_at, now)
        await asyncio.sleep(pause_after(self._failures))

    async def _fetch(self, name: str, values: dict[str, Any]) -> tuple[Sequence[Row], float, float]:
        """Rows, the time before sending, and how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        rows = await self._wire.fetch(self._sql[name], values)
        if self._failures:
            self._events.emit(told.ConnectionRestored("claim", loop.time() - self._failing_since))
            self._failures = 0
        return rows, began, loop.time() - began

    async def _sleep(self) -> None:
        until = min(
            (intake.wakes_at() for worker, intake in self._workers.items() if worker.room > 0),
            default=float("inf"),
        )
        if until == float("inf"):
            await self._wake.wait()
            return
        delay = until - asyncio.get_running_loop().time()
        if delay <= 0:
            return
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _step(self) -> bool:
        now = asyncio.get_running_loop().time()
        open_ = {worker: intake for worker, intake in self._workers.items() if worker.room > 0}
        for intake in open_.values():
            intake.awaken(now)
        if late := [intake for intake in open_.values() if intake.scan_at <= now]:
            await self._scan(late)
            return True
        # With and without keys take turns, so that a flood of one kind does not starve the other.
        self._is_keyed_turn = not self._is_keyed_turn
        for is_keyed in (self._is_keyed_turn, not self._is_keyed_turn):
            if await (self._step_of_keys(open_) if is_keyed else self._step_without_keys(open_, now)):
                return True
        if unknown := [lane for intake in open_.values() for lane in intake.lanes.values() if not lane.is_due_known]:
            await self._next_due(unknown)
            return True
        return False

    async def _step_without_keys(self, open_: dict[Worker, Intake], now: float) -> bool:
        quotas = self._quotas(open_, now)
        if quotas:
            await self._claim(quotas)
        return bool(quotas)

    async def _step_of_keys(self, open_: dict[Worker, Intake]) -> bool:
        # What is known is claimed before more is looked for: a deep key need not be read to its end first.
        if any(intake.keys for intake in open_.values()):
            await self._claim_keys(open_)
            return True
        for intake in open_.values():
            if lanes := intake.wet(keyed=True):
                await self._find_keys(intake, lanes)
                return True
        return False

    def _quotas(self, open_: dict[Worker, Intake], now: float) -> list[tuple[Worker, Lane, int]]:
        quotas: list[tuple[Worker, Lane, int]] = []
        asked: set[tuple[str, int]] = set()
        self._turn += 1
        first = self._turn % len(open_) if open_ else 0
        for worker, intake in [*open_.items()][first:] + [*open_.items()][:first]:
            # One statement asks once for a lane: of two workers of a queue the other has its turn next.
            lanes = [lane for lane in intake.wet(keyed=False) if (lane.queue, lane.priority) not in asked]
            if lanes:
                asked |= {(lane.queue, lane.priority) for lane in lanes}
                intake.turn += 1
                quotas += [(worker, lane, quota) for lane, quota in shares(lanes, worker.room, intake.turn, now)]
        return quotas

    async def _claim(self, quotas: list[tuple[Worker, Lane, int]]) -> None:
        token = uuid4()
        values = _places([lane for _, lane, _ in quotas]) | {
            "quotas": [quota for *_, quota in quotas],
            "ttls": [worker.options.lease_ttl_seconds for worker, *_ in quotas],
            "token": token,
        }
        rows, began, _ = await self._fetch("claim", values)
        server_now = rows[0][14]
        found: dict[LaneName, list[Row]] = {}
        for row in rows:
            if row[0] is not None:
                found.setdefault((row[1], row[12], False), []).append(row)
        for worker, lane, quota in quotas:
            taken = found.pop((lane.queue, lane.priority, False), [])
            taken.sort(key=_due_order)
            last = (taken[-1][7], taken[-1][0]) if taken else None
            lane.looked(last, server_now, full=len(taken) >= quota)
            if taken:
                self._told(worker, lane.queue, len(taken))
                worker.receive([Claim(row, token, worker, began) for row in taken])

    async def _claim_keys(self, open_: dict[Worker, Intake]) -> None:
        token = uuid4()
        wanted: dict[Key, tuple[Worker, int, int]] = {}
        continued: list[bool] = []
        for worker, intake in open_.items():
            room = worker.room
            if keys := intake.keys.take(room):
                run = max(1, min(room // len(keys), worker.longest_run))
                new = [key for key in keys if key not in wanted]
                wanted |= {key: (worker, run, keys[key]) for key in new}
                continued += [intake.keys.continues(key) for key in new]
        values = {
            "queues": [queue for queue, _ in wanted],
            "keys": [key for _, key in wanted],
            "runs": [run for _, run, _ in wanted.values()],
            "ttls": [worker.options.lease_ttl_seconds for worker, *_ in wanted.values()],
            "continued": continued,
            "held_by_dead": [worker.options.on_dead == "block" for worker, *_ in wanted.values()],
            "token": token,
        }
        rows, began, took = await self._fetch("claim_keys", values)
        runs: dict[Key, list[Row]] = {}
        for row in rows:
            runs.setdefault((row[1], row[11]), []).append(row)
        for key, (worker, _, priority) in wanted.items():
            claimed = runs.get(key)
            if claimed and claimed[0][0] is None:
                open_[worker].contested(key, priority, began + took)
                continue
            open_[worker].decided(key)
            if claimed:
                claimed.sort(key=_id_order)
                open_[worker].keys.hold(key, len(claimed))
                self._told(worker, key[0], len(claimed))
                worker.receive_run([Claim(row, token, worker, began) for row in claimed])

    def _told(self, worker: Worker, queue: str, count: int) -> None:
        if worker in self._workers:
            self._workers[worker].found()
        if told.Claimed in self._events:
            self._events.emit(told.Claimed(queue, worker.name, count))

    async def _find_keys(self, intake: Intake, lanes: list[Lane]) -> None:
        values = _places(lanes) | {"quotas": [KEY_WINDOW] * len(lanes)}
        rows, _, _ = await self._fetch("find_keys", values)
        seen: dict[tuple[str, int], list[Row]] = {}
        for row in rows:
            seen.setdefault((row[0], row[1]), []).append(row)
        for lane in lanes:
            page = seen[lane.queue, lane.priority]
            keys = [row for row in page if row[2] is not None]
            for row in keys:
                intake.keys.found((lane.queue, row[2]), lane.priority)
            last = (keys[-1][3], keys[-1][4]) if keys else None
            lane.looked(last, page[0][5], full=len(keys) >= KEY_WINDOW)

    async def _next_due(self, lanes: list[Lane]) -> None:
        values = {
            "queues": [lane.queue for lane in lanes],
            "priorities": [lane.priority for lane in lanes],
            "keyed": [lane.keyed for lane in lanes],
            "floor_ats": [lane.floor_at for lane in lanes],
        }
        for lane in lanes:
            lane.is_due_known = True
        rows, _, _ = await self._fetch("next_due", values)
        now = asyncio.get_running_loop().time()
        due = {(row[0], row[1], row[2]): float(row[3]) for row in rows}
        for lane in lanes:
            seconds = due.get((lane.queue, lane.priority, lane.keyed))
            if seconds is not None:
                lane.note_due(now + seconds)

    async def _scan(self, intakes: list[Intake]) -> None:
        queues = list(dict.fromkeys(queue for intake in intakes for queue in intake.queues))
        rows, began, took = await self._fetch("survey", {"queues": queues})
        for intake in intakes:
            seen: dict[LaneName, None] = {(row[0], row[2], row[1]): None for row in rows if row[0] in intake.queues}
            intake.scanned(seen, began + took, took)
            for queue in {name[0] for name in seen if name[2]}:
                await self._walk_keys(intake, queue)

    async def _walk_keys(self, intake: Intake, queue: str) -> None:
        values = {
            "queue": queue,
            "after": intake.walked.get(queue, ""),
            "keys": KEYS_PER_WALK,
            "ttl": intake.options.lease_ttl_seconds,
        }
        rows, _, _ = await self._fetch("walk_keys", values)
        for key, is_claimable, priority in rows:
            if is_claimable:
                intake.keys.found((queue, key), priority)
        # Round and round, in key order, so that every key is seen however many there are.
        intake.walked[queue] = rows[-1][0] if len(rows) >= KEYS_PER_WALK else ""


def _places(lanes: Sequence[Lane]) -> dict[str, Any]:
    starts = [lane.start() for lane in lanes]
    return {
        "queues": [lane.queue for lane in lanes],
        "priorities": [lane.priority for lane in lanes],
        "floor_ats": [at for at, _ in starts],
        "floor_ids": [number for _, number in starts],
    }


def _due_order(row: Row) -> Any:
    return row[7], row[0]


def _id_order(row: Row) -> Any:
    return row[0]

"""Claims messages with keys: candidate keys are found first, and then claimed in runs.

Two claims at the same moment may not see each other, and messages may appear between them below what one of them
takes. So a run is handed on only if nothing can appear below it, or if it is still the first of its key after the claim
was committed: of two such claims at least the later one sees the other, and gives way. A claim of several keys that
failed is tried again key by key, and message by message, so that the message that cannot be fetched is found and holds
up only its own key. Used by `claimer`.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING
from uuid import UUID

from faststream_outbox._internal.outcomes.outcome import RELEASE
from faststream_outbox._internal.poison import Narrowing
from faststream_outbox._internal.queue.asking import Asking, doubt_of_key
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.keys import Horizon, Key
from faststream_outbox._internal.queue.lanes import NO_LIMIT, Lane, begun
from faststream_outbox._internal.queue.plan import ClaimPlan, Open
from faststream_outbox._internal.sql.queue_rows import ClaimedOfKeyRow, FoundKeyRow
from faststream_outbox._internal.sql.statements import column, named

if TYPE_CHECKING:
    from faststream_outbox._internal.queue.worker import Worker


KEY_WINDOW = 500
"""Messages of a lane that are read for their keys at once."""
KEY_WINDOWS = 20_000
"""Messages of all lanes that are read at once, unless there are so many lanes that each gets few."""
LEAST_WINDOW = 20

Report = Callable[["Worker", str, int], None]
"""Called with a worker, a queue, and how many messages of it were claimed."""
Wanted = dict[Key, tuple["Worker", int, int]]
"""For each key: who wants it, how many of its messages, and its priority."""

_BY_ID = attrgetter("id")


class KeyedClaims:
    """The claimer's part for messages with keys."""

    def __init__(self, asking: Asking, reported: Report, horizon: Horizon, draw_token: Callable[[], UUID]) -> None:
        self._asking = asking
        self._report = reported
        self._horizon = horizon
        self._draw_token = draw_token
        self._messages = Narrowing(NO_LIMIT)
        """How many to claim at once."""
        self._is_lone_turn = False

    async def step(self, open_: Open, now: float) -> bool:
        """Claim runs of keys that are known, if there are some; whether there were."""
        self._is_lone_turn = not self._is_lone_turn
        for worker, plan in open_.items():
            if plan.suspects and (self._is_lone_turn or not plan.keys):
                key = next(iter(plan.suspects))
                await self._claim_keys(open_, {key: (worker, 1, plan.suspects[key])}, [None])
                return True
        wanted: Wanted = {}
        nexts: list[int | None] = []
        for worker, plan in open_.items():
            room = min(worker.room, self._messages.limit)
            if keys := plan.keys.take(room, worker.options.max_workers):
                run = max(1, min(room // len(keys), worker.longest_run))
                new = [key for key in keys if key not in wanted]
                wanted |= {key: (worker, run, keys[key]) for key in new}
                nexts += [plan.keys.next_of(key) for key in new]
        if wanted:
            await self._claim_keys(open_, wanted, nexts)
        return bool(wanted)

    async def find(self, open_: Open, now: float) -> bool:
        """Find keys of lanes that may have work, if there are such lanes; whether there were."""
        # Known keys are claimed before more are searched for: a deep key need not be read to its end first.
        if any(plan.keys for plan in open_.values()):
            return False
        for worker, plan in open_.items():
            if lanes := plan.sure(plan.with_work(keyed=True), worker.room):
                await self._find_keys(plan, lanes)
                return True
        return False

    async def _claim_keys(self, open_: Open, wanted: Wanted, nexts: list[int | None]) -> None:
        token, horizon = self._draw_token(), self._horizon
        if not self._asking.is_connected:
            horizon.forget()
        horizon.is_wanted = True
        decided, server = horizon.id, horizon.server
        values = {
            "queues": [queue for queue, _ in wanted],
            "keys": [key for _, key in wanted],
            "runs": [run for _, run, _ in wanted.values()],
            "ttls": [worker.options.lease_ttl_seconds for worker, *_ in wanted.values()],
            "nexts": nexts,
            "floors": [horizon.floor(key) for key in wanted],
            "server": server,
            "held_by_dead": [worker.options.on_dead == "block" for worker, *_ in wanted.values()],
            "token": token,
        }
        try:
            answer, began, took = await self._asking.fetch("claim_keys", values)
        except Exception as error:
            self._claim_of_keys_failed(open_, wanted, error)
            raise
        if self._asking.is_quick(took):
            self._messages.worked()
        rows = named(ClaimedOfKeyRow, answer)
        self._asking.arrived(row.id for row in rows)
        runs: dict[Key, list[ClaimedOfKeyRow]] = {}
        for row in rows:
            runs.setdefault((row.queue, row.key), []).append(row)
        doubtful: list[tuple[Worker, list[Claim]]] = []
        for key, (worker, _, priority) in wanted.items():
            claimed = runs.get(key)
            open_[worker].cleared(key)
            if claimed and claimed[0].id is None:
                open_[worker].contested(key, priority, began + took)
                continue
            open_[worker].decided(key)
            if claimed:
                claimed.sort(key=_BY_ID)
                head = claimed[0]
                open_[worker].keys.hold(key, len(claimed), head.next_id, head.more)
                horizon.found(key, head.first_id, decided)
                self._report(worker, head.queue, len(claimed))
                run = [Claim(row, token, worker, self._asking.sent_at) for row in claimed]
                if head.is_certain and head.id <= decided:
                    worker.receive_run(run)
                else:
                    doubtful.append((worker, run))
        if doubtful:
            await self._hand_on(open_, doubtful)

    async def _hand_on(self, open_: Open, runs: list[tuple["Worker", list[Claim]]]) -> None:
        """Hand on the runs that are still the first of their keys, and give back the others."""
        heads = [run[0] for _, run in runs]
        values = {
            "queues": [head.queue for head in heads],
            "keys": [head.key for head in heads],
            "firsts": [head.id for head in heads],
        }
        try:
            rows, began, took = await self._asking.fetch("overtaken", values)
        except BaseException:
            for worker, run in runs:
                _give_back(worker, run)
            raise
        overtaken = set(column(rows))
        for place, (worker, run) in enumerate(runs, start=1):
            head = run[0]
            if place in overtaken:
                open_[worker].contested((head.queue, str(head.key)), head.priority, began + took)
                _give_back(worker, run)
            else:
                worker.receive_run(run)

    def _claim_of_keys_failed(self, open_: Open, wanted: Wanted, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        self._messages.failed(sum(run for _, run, _ in wanted.values()))
        for key, (worker, run, priority) in wanted.items():
            is_alone = len(wanted) == 1 and run == 1
            open_[worker].suspect(key, priority, now, alone=is_alone)
            if is_alone:
                self._asking.suspect(doubt_of_key(*key, worker.options.lease_ttl_seconds, error))

    async def _find_keys(self, plan: ClaimPlan, lanes: list[Lane]) -> None:
        window = max(LEAST_WINDOW, min(KEY_WINDOW, KEY_WINDOWS // len(lanes)))
        values = begun(lanes) | {"quotas": [window] * len(lanes)}
        try:
            answer, _, _ = await self._asking.fetch("find_keys", values)
        except BaseException:
            for lane in lanes:
                lane.interrupted()
            raise
        seen: dict[tuple[str, int], list[FoundKeyRow]] = {}
        for row in named(FoundKeyRow, answer):
            seen.setdefault((row.queue, row.priority), []).append(row)
        for lane in lanes:
            # There is a row also where the lane has no message.
            page = seen[lane.queue, lane.priority]
            last: tuple[datetime, int] | None = None
            found = 0
            for row in page:
                if row.key is not None:
                    plan.found_key((lane.queue, row.key), lane.priority)
                    last = (row.next_attempt_at, row.id)
                    found += 1
            lane.scanned(last, page[0].server_now, full=found >= window)


def _give_back(worker: "Worker", run: list[Claim]) -> None:
    worker.unsettled.update(run)
    for claim in run:
        worker.settle(claim, RELEASE)

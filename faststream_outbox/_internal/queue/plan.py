"""What workers want from the claimer: their lanes, their keys, and when to scan from the beginning.

A `ClaimPlan` is one worker's, `Plans` are those of all workers of a client, and the one place where its loops meet: the
claimer takes from them, the scanner adds to them, hints and outcomes are noted in them. None of these knows another.
Bookkeeping on given times; nothing here asks the database. Made by the client.
"""

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from faststream_outbox._internal.outcomes.outcome import FinalOutcome, Release
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.keys import Horizon, Key, KeyRing
from faststream_outbox._internal.queue.lanes import NEVER, Lane
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox._internal.service import pause_after
from faststream_outbox._internal.wakeup.hint import Hint

if TYPE_CHECKING:
    from faststream_outbox._internal.queue.asking import Unheard
    from faststream_outbox._internal.queue.worker import Worker


FIRST_SCAN_SECONDS = 0.25
"""How long a new worker's first claim waits for the scan that tells of priorities."""
KEEP_LANE_SECONDS = 60.0
"""For so long after a hint a lane is kept in which no message was seen."""
BACKOFF = 1.5
JITTER = 0.1
MOST_UNSEEN_LANES = 64
"""Hints may name priorities that no message has: so many are believed until a scan has seen them."""
TRY_AGAIN_SECONDS = (0.005, 0.01, 0.02, 0.04, 0.08)
"""Two claims that gave way to each other must not meet again; what stays locked is left to the next scan."""

FEW_LANES = 16
"""Of so many lanes it is cheaper to claim than to find out which have something."""

MOST_STRAYS = 500
"""Messages below a lane's floor that are claimed one by one; where there are more, the floor is lowered."""

LaneName = tuple[str, int, bool]
"""Queue, priority, and whether its messages have keys."""


def next_interval(current: float, options: WorkerOptions, *, found: bool) -> float:
    """Seconds between full scans: short while there is work, growing while there is none."""
    if found:
        return options.min_fetch_interval
    # A lease that ran out is found by a full scan, so scans must not be further apart than leases are long.
    ceiling = min(options.max_fetch_interval, max(options.min_fetch_interval, options.lease_ttl_seconds / 2))
    return min(ceiling, current * BACKOFF)


class ClaimPlan:
    """Lanes and keys of one worker's queues."""

    def __init__(self, queues: Sequence[str], options: WorkerOptions, begins_at: float = 0.0) -> None:
        self.queues = dict.fromkeys(queues)
        self.options = options
        self.keys = KeyRing()
        self.lanes: dict[LaneName, Lane] = {}
        self.begins_at = begins_at
        """Nothing is claimed before: the first scan tells of the priorities, but it is not waited for very long."""
        self.scan_at = 0.0
        self.earliest_scan = 0.0
        self._scan_asked_at = float("-inf")
        self._last_took = 0.0
        self.strays: dict[int, str] = {}
        """Messages without keys that a scan found below the floors, by id, and their queues."""
        self.suspects: dict[Key, int] = {}
        """Keys whose claim failed, each with its priority: they are asked for alone."""
        self._suspect_failures: dict[Key, int] = {}
        self.is_unsure = False
        """Whether very many lanes may have something: which of them have must be found out."""
        self._turn = 0
        self.can_probe = True
        """Whether the last probe worked; else claims go to each of those lanes in turn."""
        self.probe_at = 0.0
        """The next probe is not before."""
        self._unseen: set[LaneName] = set()
        self._interval = options.min_fetch_interval
        self._found = False
        self._contested: dict[Key, int] = {}
        self._again: dict[Key, tuple[float, int]] = {}
        for queue in self.queues:
            self.lane((queue, 0, False))

    def lane(self, name: LaneName) -> Lane:
        """The lane of that name, made if need be."""
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane(*name)
        return lane

    def _hinted_lane(self, name: LaneName, now: float) -> Lane | None:
        """The lane that a hint names; None if too many were named that have no messages."""
        _, priority, _ = name
        if name not in self.lanes and priority != 0:
            if len(self._unseen) >= MOST_UNSEEN_LANES:
                self.ask_scan(now)
                return None
            self._unseen.add(name)
        return self.lane(name)

    def ask_scan(self, now: float) -> None:
        """Have a full scan as soon as one is allowed again."""
        self._scan_asked_at = now
        self.scan_at = min(self.scan_at, max(now, self.earliest_scan))

    def released(self, now: float) -> None:
        """A message was given back: below the floors, where a full scan sees it."""
        self.scan_at = min(self.scan_at, max(now, self.earliest_scan))

    def joins_scan(self, now: float) -> bool:
        """Whether a scan that takes place now may stand for the next one of this worker."""
        return self.earliest_scan <= now and self.scan_at - now <= self._interval / 2

    def hint(self, hint: Hint, now: float) -> None:
        """Somebody published, released or resumed."""
        if hint.queue is not None and hint.queue not in self.queues:
            return
        for lane in self._meant(hint, now):
            if hint.due_in > 0:
                lane.hint_due(now, now + hint.due_in, is_precise=not hint.later)
            else:
                is_precise = bool(hint.priorities) and not hint.later
                lane.hint(now, is_precise=is_precise, is_named=hint.queue is not None)
        if hint.scan:
            self.ask_scan(now)

    def _meant(self, hint: Hint, now: float) -> Iterable[Lane]:
        queues = self.queues if hint.queue is None else {hint.queue: None}
        kinds = [keyed for keyed, meant in ((False, hint.keyless), (True, hint.keyed)) if meant]
        if hint.priorities:
            named = [(queue, priority, keyed) for queue in queues for priority in hint.priorities for keyed in kinds]
            return [lane for name in named if (lane := self._hinted_lane(name, now)) is not None]
        for queue in queues:
            for keyed in kinds:
                self.lane((queue, 0, keyed))
        return [lane for lane in self.lanes.values() if lane.queue in queues and lane.keyed in kinds]

    def contested(self, key: Key, priority: int, now: float) -> None:
        """The key was free, and another claim was at it, or leases had to be ended first: ask again soon."""
        times = self._contested.get(key, 0)
        if times < len(TRY_AGAIN_SECONDS):
            self._contested[key] = times + 1
            self._again[key] = (now + TRY_AGAIN_SECONDS[times] * random.uniform(0.5, 1.5), priority)
        else:
            del self._contested[key]

    def decided(self, key: Key) -> None:
        """The key is ours, or another's."""
        self._contested.pop(key, None)

    def found_key(self, key: Key, priority: int) -> None:
        """The key may have a message to claim."""
        if key not in self.suspects:
            self.keys.found(key, priority)

    def suspect(self, key: Key, priority: int, now: float, *, alone: bool) -> None:
        """A claim of this key failed, together with others or alone."""
        if alone:
            failures = self._suspect_failures[key] = self._suspect_failures.get(key, 0) + 1
            self._again[key] = (now + pause_after(failures), priority)
            self.suspects.pop(key, None)
        else:
            self.suspects[key] = priority

    def cleared(self, key: Key) -> None:
        """A claim of this key worked."""
        self.suspects.pop(key, None)
        self._suspect_failures.pop(key, None)

    def found_below(self, lane: Lane, rows: Sequence[tuple[datetime, int]]) -> None:
        """These messages lie below the lane's floor and could be claimed, the oldest first."""
        if len(rows) >= MOST_STRAYS:
            lane.lower(*rows[0])
        else:
            self.strays.update((number, lane.queue) for _, number in rows)

    def take_strays(self, most: int) -> dict[int, str]:
        """So many of the messages below the floors, to claim them now: by id, with their queues."""
        taken = dict(islice(self.strays.items(), max(0, most)))
        for number in taken:
            del self.strays[number]
        return taken

    def put_back(self, strays: Mapping[int, str]) -> None:
        """These could not be claimed with others; they are tried again."""
        self.strays.update(strays)

    def next_turn(self) -> int:
        """Lanes are claimed from once more: whose turn it is first among queues."""
        self._turn += 1
        return self._turn

    def awaken(self, now: float) -> None:
        """Mark the lanes and the keys whose time has come."""
        for key, (at, priority) in list(self._again.items()):
            if at <= now:
                del self._again[key]
                if key in self._suspect_failures:
                    self.suspects[key] = priority
                else:
                    self.keys.found(key, priority)
        for lane in self.lanes.values():
            if lane.due_at <= now:
                lane.awaken(now)

    def with_work(self, *, keyed: bool) -> list[Lane]:
        """The lanes that may have something to claim, without those that failed."""
        return [
            lane for lane in self.lanes.values() if lane.keyed is keyed and lane.may_have_work and not lane.failures
        ]

    def sure(self, lanes: list[Lane], room: int) -> list[Lane]:
        """Of lanes that may have something: all, or those that have, while too many others are to be probed."""
        sure = [lane for lane in lanes if lane.has_work]
        if len(lanes) - len(sure) <= max(room, FEW_LANES):
            return lanes
        self.is_unsure = True
        return sure if self.can_probe else lanes

    def to_probe(self, most: int) -> list[Lane]:
        """Lanes that may have something or not."""
        lanes = [lane for lane in self.lanes.values() if lane.may_have_work and not lane.has_work and not lane.failures]
        self.is_unsure = len(lanes) > most
        return lanes[:most]

    def probed(self, now: float, took: float, *, worked: bool) -> None:
        """A probe has ended. However often hints mean all lanes, others have as much time as probes take."""
        self.probe_at, self.can_probe = now + took, worked

    def failing(self, now: float) -> Lane | None:
        """A lane without keys that failed and may be tried again: the one that has waited longest."""
        lanes = [
            lane
            for lane in self.lanes.values()
            if lane.failures and lane.may_have_work and not lane.keyed and lane.retry_at <= now
        ]
        return min(lanes, key=lambda lane: lane.retry_at, default=None)

    def found(self) -> None:
        """Something was claimed: the queue is not idle."""
        self._found = True

    def surveyed(self, names: Iterable[LaneName]) -> None:
        """A scan has seen these lanes: claims need not wait for its end."""
        for name in names:
            self.lane(name)
        self.begins_at = 0.0

    def scanned(self, seen: Mapping[LaneName, None], now: float, took: float) -> None:
        """A full scan has ended: `seen` are the lanes that have messages. The others cost nothing until a hint."""
        self._interval = next_interval(self._interval, self.options, found=self._found)
        self._found = False
        spread = 1.0 + random.uniform(-JITTER, JITTER)
        # One that was slow alone stood behind a lock, or this process stood still: that is not what scans cost.
        cost, self._last_took = min(took, self._last_took), took
        self.earliest_scan = now + max(0.1, 20 * cost)
        self.scan_at = now + max(self._interval * spread, 10 * cost)
        if self._scan_asked_at > now - took:
            # Whoever asked while it took place may mean what it had passed by then.
            self.ask_scan(now)
        for name in seen:
            lane = self.lane(name)
            lane.hint(lane.hinted_at, is_precise=False, is_named=False)
        self._unseen.difference_update(seen)
        for name, lane in list(self.lanes.items()):
            is_plain = lane.priority == 0 and not lane.keyed
            is_old = now - lane.hinted_at > KEEP_LANE_SECONDS
            if is_old and not is_plain and not lane.may_have_work and name not in seen:
                del self.lanes[name]
                self._unseen.discard(name)

    def wakes_at(self) -> float:
        """When there is something to claim even if nobody calls."""
        again = (at for at, _ in self._again.values())
        retries = (lane.retry_at for lane in self.lanes.values() if lane.failures and lane.may_have_work)
        probe = self.probe_at if self.is_unsure else NEVER
        return min(self.begins_at or NEVER, probe, *again, *retries, *(lane.due_at for lane in self.lanes.values()))


Open = Mapping["Worker", ClaimPlan]
"""Workers that have room, and what they want."""


class Plans:
    """What all workers of a client want."""

    def __init__(self, horizon: Horizon, unheard: "Unheard") -> None:
        self.horizon = horizon
        self.unheard = unheard
        self.work: asyncio.Event = asyncio.Event()
        """Set when there may be something to claim: the claimer waits for it."""
        self.rest: asyncio.Event = asyncio.Event()
        """Set when there is nothing to claim for the moment, and something to scan: the scanner waits for it."""
        self._plans: dict[Worker, ClaimPlan] = {}
        self._scans_at = NEVER

    def add(self, worker: "Worker", now: float) -> None:
        """Claim for this worker too, from the beginning."""
        self._plans[worker] = ClaimPlan(worker.queues, worker.options, now + FIRST_SCAN_SECONDS)
        self.work.set()

    def remove(self, worker: "Worker") -> None:
        """Claim no more for this worker."""
        self._plans.pop(worker, None)
        self.work.set()

    def open(self) -> Open:
        """Of the workers that have room."""
        return {worker: plan for worker, plan in self._plans.items() if worker.room > 0}

    def hint(self, hint: Hint, now: float) -> None:
        """There may be work in a queue."""
        for plan in self._plans.values():
            plan.hint(hint, now)
        self.work.set()

    def found(self, worker: "Worker") -> None:
        """Something was claimed for this worker."""
        if worker in self._plans:
            self._plans[worker].found()

    def settled(self, worker: "Worker", claim: Claim, outcome: FinalOutcome, now: float) -> None:
        """An outcome was written: its key is free for the next message, and what was given back is to be found."""
        plan = self._plans.get(worker)
        if plan is not None:
            if claim.key is not None:
                plan.keys.settled((claim.queue, claim.key), claim.priority, more=claim.has_more)
            if isinstance(outcome, Release):
                plan.released(now)
        self.work.set()

    def ask_scan(self, now: float) -> None:
        """Have a full scan for every worker as soon as one is allowed again."""
        for plan in self._plans.values():
            plan.ask_scan(now)

    def due_for_scan(self, now: float) -> list[ClaimPlan]:
        """Whose scan is due, and with them those whose scan would be due soon: one scan is enough for all."""
        plans = self.open().values()
        if not any(plan.scan_at <= now for plan in plans):
            return []
        return [plan for plan in plans if plan.scan_at <= now or plan.joins_scan(now)]

    def to_date(self) -> list[Lane]:
        """Lanes of which it is to be asked when their next message falls due."""
        lanes = (lane for plan in self.open().values() for lane in plan.lanes.values())
        return [lane for lane in lanes if not lane.may_have_work and not lane.is_due_known]

    def scans_at(self, at: float) -> None:
        """The scanner will go on by itself then."""
        self._scans_at = at

    def rested(self, now: float) -> None:
        """There is nothing to claim for the moment: have scanned what is due before the scanner goes on by itself."""
        is_read = self.horizon.wants_reading(now)
        if is_read or any(plan.scan_at < self._scans_at for plan in self.open().values()) or self.to_date():
            self.rest.set()

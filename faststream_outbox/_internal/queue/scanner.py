"""Full scans, beside the claims and on a connection of their own.

They find which lanes there are, what lies below the claimer's floors, which keys have a head to claim, and when the
next message falls due. They take nothing: what they find is noted in the `Plans`, and the claimer claims it. However
long a scan takes and however often it fails, no claim waits for it. Runs as a service of the client.

A lease ran out, a queue was resumed, a transaction took long: then a key's head lies below the floor of its lane, and
no claim knows of it. `StrayKeys` finds such keys. A lane that has passed everything due is scanned by due time, once
and from the beginning: what waits for later costs nothing. Where that would be too many messages, or the lane is still
on its way through a backlog, the queue's keys are walked in key order instead, however deep each is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from faststream_outbox._internal.connections.dedicated import Connection, Row
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.outage import Outage
from faststream_outbox._internal.queue.lanes import BEFORE_ALL_IDS, NEVER, Lane
from faststream_outbox._internal.queue.plan import MOST_STRAYS, ClaimPlan, LaneName, Plans
from faststream_outbox._internal.service import STUCK_SECONDS, Pulse, called
from faststream_outbox._internal.sql.queue_rows import (
    ClaimableKeyRow,
    ClaimableRow,
    DrawnIdsRow,
    LaneRow,
    NextDueRow,
    WalkedKeyRow,
)
from faststream_outbox._internal.sql.statements import Statements, named

MOST_DUE = 10_000
"""Messages of a lane that are scanned by due time."""
KEYS_PER_WALK = 500
"""Keys that one statement of a walk passes."""

Fetch = Callable[[str, dict[str, Any]], Awaitable[Sequence[Row]]]


class StrayKeys:
    """The scanner's part for messages with keys."""

    def __init__(self, fetch: Fetch, plans: Plans, between: Callable[[], Awaitable[None]]) -> None:
        self._fetch = fetch
        self._plans = plans
        self._between = between
        """Called after each part of a long walk: other statements must not wait for its end."""
        self._walked: dict[str, str] = {}
        """Where a walk that failed goes on."""

    async def scan(self, plans: Sequence[ClaimPlan], lanes: Sequence[LaneRow]) -> None:
        """Give the plans the keys that they could claim; these are the lanes with keys that have messages."""
        names: dict[str, list[LaneName]] = {}
        for lane in lanes:
            names.setdefault(lane.queue, []).append((lane.queue, lane.priority, lane.keyed))
        passed: dict[LaneName, list[ClaimPlan]] = {}
        rest: dict[str, list[ClaimPlan]] = {}
        for plan in plans:
            for queue, mine in names.items():
                if queue not in plan.queues:
                    continue
                # A head may have any priority: it is seen for sure only if all lanes of the queue are.
                if all(plan.lane(name).has_passed_all for name in mine):
                    for name in mine:
                        passed.setdefault(name, []).append(plan)
                else:
                    rest.setdefault(queue, []).append(plan)
        if passed:
            for queue, waiting in await self._scan_due(passed):
                rest.setdefault(queue, []).extend(waiting)
        for queue, waiting in rest.items():
            await self._walk(queue, list(dict.fromkeys(waiting)))

    async def _scan_due(self, wanted: dict[LaneName, list[ClaimPlan]]) -> list[tuple[str, list[ClaimPlan]]]:
        """Scan lanes by due time; gives the queues that have too many messages for it."""
        values = {
            "queues": [queue for queue, _, _ in wanted],
            "priorities": [priority for _, priority, _ in wanted],
            "ttls": [_shortest_lease(plans) for plans in wanted.values()],
            "held_by_dead": [_all_block(plans) for plans in wanted.values()],
            "most": MOST_DUE,
            "unheard": self._plans.unheard.tokens(asyncio.get_running_loop().time()),
        }
        places = list(wanted.items())
        left: list[tuple[str, list[ClaimPlan]]] = []
        for found in named(ClaimableKeyRow, await self._fetch("claimable_keys", values)):
            (queue, _, _), plans = places[found.n - 1]
            if found.key is not None:
                self._plans.horizon.seen((queue, found.key), found.id)
                for plan in plans:
                    plan.found_key((queue, found.key), found.priority)
            elif found.has_more:
                left.append((queue, plans))
        self._plans.work.set()
        return left

    async def _walk(self, queue: str, plans: list[ClaimPlan]) -> None:
        """Walk over all keys of a queue, some at a time; they can be claimed meanwhile."""
        values = {
            "queue": queue,
            "keys": KEYS_PER_WALK,
            "ttl": _shortest_lease(plans),
            "held_by_dead": _all_block(plans),
            "unheard": self._plans.unheard.tokens(asyncio.get_running_loop().time()),
        }
        while True:
            after = self._walked.get(queue, "")
            rows = named(WalkedKeyRow, await self._fetch("walk_keys", values | {"after": after}))
            for row in rows:
                if row.is_claimable:
                    self._plans.horizon.seen((queue, row.key), row.id)
                    for plan in plans:
                        plan.found_key((queue, row.key), row.priority)
            self._plans.work.set()
            if len(rows) < KEYS_PER_WALK:
                self._walked.pop(queue, None)
                return
            self._walked[queue] = rows[-1].key
            await self._between()


def _shortest_lease(plans: Sequence[ClaimPlan]) -> float:
    return min(plan.options.lease_ttl_seconds for plan in plans)


def _all_block(plans: Sequence[ClaimPlan]) -> bool:
    return all(plan.options.on_dead == "block" for plan in plans)


SCAN_TIMEOUT = 300.0
"""Seconds that a scan may take: nothing waits for it, and a million dead index entries take their time."""


class Scanner:
    """The one task that scans."""

    def __init__(self, plans: Plans, connection: Connection, sql: Statements, events: Events, table: str) -> None:
        self._plans = plans
        self._connection = connection
        self._sql = sql
        self._table = table
        self.pulse = Pulse(SCAN_TIMEOUT + STUCK_SECONDS)
        self._scans = Outage("scan", events)
        self._dues = Outage("next_due", events)
        self._readings = Outage("drawn_ids", events)
        self._stray_keys = StrayKeys(self._fetch, plans, self._between)

    @property
    def outages(self) -> list[Outage]:
        """Of each kind of its statements."""
        return [self._scans, self._dues, self._readings]

    async def run(self) -> None:
        """Scan until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._plans.rest.clear()
            self.pulse.beat()
            await self._between()
            now = loop.time()
            if (late := self._plans.due_for_scan(now)) and not self._scans.holds(now):
                await self._try(self._scan(late), self._scans)
            elif not self._plans.to_date() or self._dues.holds(now):
                await self._sleep(now)

    async def _between(self) -> None:
        """What must not wait for the end of a long scan."""
        await self._tell_dues()
        if self._plans.horizon.wants_reading(asyncio.get_running_loop().time()):
            await self._try(self._read_horizon(), self._readings)

    async def _read_horizon(self) -> None:
        horizon, loop = self._plans.horizon, asyncio.get_running_loop()
        beginnings = horizon.beginnings
        horizon.failed(loop.time())
        rows = await self._fetch("drawn_ids", {"table": self._table})
        for row in named(DrawnIdsRow, rows) if beginnings == horizon.beginnings else ():
            horizon.read(row.server, row.drawn, row.writers, loop.time())

    async def _tell_dues(self) -> None:
        unknown = self._plans.to_date()
        if unknown and not self._dues.holds(asyncio.get_running_loop().time()):
            await self._try(self._next_due(unknown), self._dues)

    async def _try(self, scan: Any, outage: Outage) -> None:
        loop = asyncio.get_running_loop()
        try:
            await scan
        except Exception as error:  # noqa: BLE001 - reported, and tried again
            outage.failed(error, loop.time())
        else:
            outage.worked(loop.time())
        self._plans.work.set()

    async def _sleep(self, now: float) -> None:
        times = [plan.scan_at for plan in self._plans.open().values()]
        times += [outage.retry_at for outage in (self._scans, self._dues) if outage.holds(now)]
        if self._plans.horizon.is_wanted:
            times.append(self._plans.horizon.read_at)
        # What is late now waits for the end of an outage.
        until = min((at for at in times if at > now), default=NEVER)
        self._plans.scans_at(until)
        self.pulse.rest(until - now)
        await called(self._plans.rest, until)

    async def _fetch(self, name: str, values: dict[str, Any]) -> Sequence[Row]:
        self.pulse.beat()
        return await self._connection.fetch(self._sql[name], values)

    async def _next_due(self, lanes: list[Lane]) -> None:
        values = {
            "queues": [lane.queue for lane in lanes],
            "priorities": [lane.priority for lane in lanes],
            "keyed": [lane.keyed for lane in lanes],
            "floor_ats": [lane.floor_at for lane in lanes],
        }
        for lane in lanes:
            # Before the question: a hint that comes meanwhile asks for another.
            lane.ask_due()
        try:
            rows = await self._fetch("next_due", values)
        except BaseException:
            for lane in lanes:
                lane.due_unknown()
            raise
        now = asyncio.get_running_loop().time()
        due = {(row.queue, row.priority, row.keyed): row.due_in for row in named(NextDueRow, rows)}
        for lane in lanes:
            seconds = due.get((lane.queue, lane.priority, lane.keyed))
            if seconds is not None:
                lane.note_due(now + seconds)

    async def _scan(self, plans: list[ClaimPlan]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        queues = list(dict.fromkeys(queue for plan in plans for queue in plan.queues))
        found = named(LaneRow, await self._fetch("survey", {"queues": queues}))
        of_queue: dict[str, list[LaneName]] = {}
        for lane in found:
            of_queue.setdefault(lane.queue, []).append((lane.queue, lane.priority, lane.keyed))
        names = {plan: [name for queue in plan.queues for name in of_queue.get(queue, ())] for plan in plans}
        for plan in plans:
            plan.surveyed(names[plan])
        self._plans.work.set()
        await self._scan_below(plans)
        await self._stray_keys.scan(plans, [lane for lane in found if lane.keyed])
        now = loop.time()
        for plan in plans:
            plan.scanned(dict.fromkeys(names[plan]), now, now - began)

    async def _scan_below(self, plans: list[ClaimPlan]) -> None:
        places = [
            (plan, lane)
            for plan in plans
            for lane in plan.lanes.values()
            if not lane.keyed and lane.floor_at is not None
        ]
        if not places:
            return
        lanes = [lane for _, lane in places]
        values = {
            "queues": [lane.queue for lane in lanes],
            "priorities": [lane.priority for lane in lanes],
            "from_ats": [None] * len(lanes),
            "from_ids": [BEFORE_ALL_IDS] * len(lanes),
            "to_ats": [lane.floor_at for lane in lanes],
            "to_ids": [lane.floor_id for lane in lanes],
            "ttls": [plan.options.lease_ttl_seconds for plan, _ in places],
            "most": MOST_STRAYS,
            "unheard": self._plans.unheard.tokens(asyncio.get_running_loop().time()),
        }
        found: dict[int, list[ClaimableRow]] = {}
        for row in named(ClaimableRow, await self._fetch("claimable", values)):
            found.setdefault(row.n, []).append(row)
        for place, rows in found.items():
            plan, lane = places[place - 1]
            plan.found_below(lane, [(row.next_attempt_at, row.id) for row in rows])

"""Claims for every worker of the process, on one connection, one statement at a time.

Asks only for lanes that may have something, only as much as the workers have room for, and sleeps until a hint or the
next due message: all of that is in the `Plans`. Keyless messages are claimed straight from the index, or by id where
the scanner has found them; those with keys by `keyed`. Each kind of statement fails for itself. What failed is tried
again alone and for less, down to one message, which is then set apart, so that it holds up no other. Runs as a service
of the client.

A hint that names no queue, and a worker's beginning, mean every lane. Where those are more than the worker has room
for, a claim would ask for a few of them at a time, and a message in the last of a thousand queues would wait for
hundreds of claims. So the `LaneFinder` probes them all at once, in one statement that leases nothing, and claims go
where something was seen. While probes fail, claims go round as if there were none.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import Connection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.outage import Outage
from faststream_outbox._internal.poison import Narrowing
from faststream_outbox._internal.queue.asking import Asking, Culprits, doubt_of_lane, doubt_of_message
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.keyed import KeyedClaims
from faststream_outbox._internal.queue.lanes import NEVER, NO_LIMIT, Lane, begun, shares
from faststream_outbox._internal.queue.plan import FEW_LANES, ClaimPlan, Open, Plans
from faststream_outbox._internal.service import Pulse, called
from faststream_outbox._internal.sql.queue_rows import ClaimedRow, FoundLaneRow
from faststream_outbox._internal.sql.statements import Statements, named

if TYPE_CHECKING:
    from faststream_outbox._internal.queue.worker import Worker


class LaneFinder:
    """The claimer's part for lanes of which nothing is known."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._lanes = Narrowing(NO_LIMIT, least=FEW_LANES, part=4)
        """How many to probe at once."""

    async def step(self, open_: Open, now: float) -> bool:
        """Probe the lanes of one worker, if there are too many to claim from; whether there were."""
        for plan in open_.values():
            if plan.is_unsure and plan.probe_at <= now and (lanes := plan.to_probe(self._lanes.limit)):
                await self._probe(plan, lanes)
                return True
        return False

    async def _probe(self, plan: ClaimPlan, lanes: list[Lane]) -> None:
        loop = asyncio.get_running_loop()
        values = begun(lanes) | {
            "keyed": [lane.keyed for lane in lanes],
            "ttl": plan.options.lease_ttl_seconds,
            "unheard": self._asking.unheard.tokens(loop.time()),
        }
        try:
            answer, _, took = await self._asking.fetch("find_lanes", values)
        except BaseException:
            self._lanes.failed(len(lanes))
            for lane in lanes:
                lane.interrupted()
            plan.probed(loop.time(), 0.0, worked=False)
            raise
        plan.probed(loop.time(), took, worked=True)
        if self._asking.is_quick(took):
            self._lanes.worked()
        rows = named(FoundLaneRow, answer)
        # There is a row also where no lane has a message.
        server_now, found = rows[0].server_now, {row.n for row in rows}
        for place, lane in enumerate(lanes, start=1):
            if place in found:
                lane.found()
            else:
                lane.scanned(None, server_now, full=False)


Quota = tuple["Worker", Lane, int]
"""For whom, from which lane, and how many messages at most."""

_DUE_ORDER = attrgetter("next_attempt_at", "id")


class Claimer:
    """The one task that claims."""

    def __init__(
        self,
        plans: Plans,
        connection: Connection,
        sql: Statements,
        events: Events,
        draw_token: Callable[[], UUID],
    ) -> None:
        self._plans = plans
        self._draw_token = draw_token
        self._events = events
        self._turn = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.pulse: Pulse = Pulse()
        self._asking = Asking(connection, sql, plans.unheard, Culprits(connection, sql, events), plans.ask_scan)
        keyed = KeyedClaims(self._asking, self._report, plans.horizon, draw_token)
        self._strays = Narrowing(NO_LIMIT)
        """How many to claim at once for a worker."""
        self._is_lone_turn = False
        self._now = 0.0
        self._server_now: datetime | None = None
        steps: list[tuple[str, Callable[[Open, float], Any]]] = [
            ("claim", self._step_without_keys),
            ("find_lanes", LaneFinder(self._asking).step),
            ("claim_found", self._step_of_strays),
            ("claim_keys", keyed.step),
            ("find_keys", keyed.find),
        ]
        self._steps = [(Outage(kind, events), step) for kind, step in steps]
        self._examining = Outage("examine", events)

    async def leave(self, worker: "Worker") -> None:
        """Claim no more for this worker; returns when none of its claims is under way."""
        self._plans.remove(worker)
        await self._idle.wait()

    @property
    def outages(self) -> list[Outage]:
        """Of each kind of its statements."""
        return [self._examining, *(outage for outage, _ in self._steps)]

    async def run(self) -> None:
        """Claim until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._plans.work.clear()
                self._idle.clear()
                worked = await self._step()
                self.pulse.beat()
                self._idle.set()
                if not worked:
                    self._plans.rested(loop.time())
                    await self._sleep()
        finally:
            self._idle.set()

    async def _step(self) -> bool:
        now = self._now = asyncio.get_running_loop().time()
        open_ = {worker: plan for worker, plan in self._plans.open().items() if plan.begins_at <= now}
        for plan in open_.values():
            plan.awaken(now)
        if self._asking.doubts and not self._examining.holds(now):
            await self._try(self._examining, self._examine())
            return True
        # The kinds take turns, so that a flood of one does not starve the others.
        self._turn += 1
        for place in range(len(self._steps)):
            outage, step = self._steps[(self._turn + place) % len(self._steps)]
            if not outage.holds(now) and await self._try(outage, step(open_, now)):
                return True
        return False

    async def _try(self, outage: Outage, step: Any) -> bool:
        loop = asyncio.get_running_loop()
        try:
            worked = bool(await step)
        except Exception as error:  # noqa: BLE001 - reported, and tried again
            outage.failed(error, loop.time())
            return True
        if worked:
            outage.worked(loop.time())
        return worked

    async def _examine(self) -> bool:
        await self._asking.examine()
        return True

    async def _sleep(self) -> None:
        times = [plan.wakes_at() for plan in self._plans.open().values()]
        times += [outage.retry_at for outage in (self._examining, *(outage for outage, _ in self._steps))]
        # What was due when the last step began and was not done waits for the end of an outage.
        until = min((at for at in times if at > self._now), default=NEVER)
        now = asyncio.get_running_loop().time()
        if until > now:
            self.pulse.rest(until - now)
            await called(self._plans.work, until)

    async def _step_without_keys(self, open_: Open, now: float) -> bool:
        quotas = self._quotas(open_, now)
        failing = {lane: worker for worker, plan in open_.items() if (lane := plan.failing(now)) is not None}
        self._is_lone_turn = not self._is_lone_turn
        if failing and (self._is_lone_turn or not quotas):
            lane = min(failing, key=lambda lane: lane.retry_at)
            quotas = [(failing[lane], lane, min(failing[lane].room, lane.most))]
        if quotas:
            await self._claim(quotas)
        return bool(quotas)

    async def _step_of_strays(self, open_: Open, now: float) -> bool:
        wanted: dict[int, tuple[Worker, str]] = {}
        for worker, plan in open_.items():
            for number, queue in plan.take_strays(min(worker.room, self._strays.limit)).items():
                wanted.setdefault(number, (worker, queue))
        if wanted:
            await self._claim_found(open_, wanted)
        return bool(wanted)

    def _quotas(self, open_: Open, now: float) -> list[Quota]:
        quotas: list[Quota] = []
        asked: set[tuple[str, int]] = set()
        first = self._turn % len(open_) if open_ else 0
        for worker, plan in [*open_.items()][first:] + [*open_.items()][:first]:
            room = worker.room
            lanes = plan.sure(plan.with_work(keyed=False), room)
            # One statement asks once for a lane: of two workers of a queue the other has its turn next.
            lanes = [lane for lane in lanes if (lane.queue, lane.priority) not in asked]
            if lanes:
                asked |= {(lane.queue, lane.priority) for lane in lanes}
                for lane, quota in shares(lanes, room, plan.next_turn(), now):
                    quotas.append((worker, lane, min(quota, lane.most)))
        return quotas

    async def _claim(self, quotas: list[Quota]) -> None:
        token = self._draw_token()
        values = begun([lane for _, lane, _ in quotas]) | {
            "quotas": [quota for *_, quota in quotas],
            "ttls": [worker.options.lease_ttl_seconds for worker, *_ in quotas],
            "token": token,
        }
        try:
            claimed, _, took = await self._asking.fetch("claim", values)
        except Exception as error:
            self._claim_failed(quotas, values, error)
            raise
        rows = named(ClaimedRow, claimed)
        # There is a row also where there is no message.
        server_now = self._server_now = rows[0].acquired_at
        self._asking.arrived(row.id for row in rows)
        found: dict[tuple[str, int], list[ClaimedRow]] = {}
        for row in rows:
            if row.id is not None:
                found.setdefault((row.queue, row.priority), []).append(row)
        for worker, lane, quota in quotas:
            taken = found.pop((lane.queue, lane.priority), [])
            taken.sort(key=_DUE_ORDER)
            last = (taken[-1].next_attempt_at, taken[-1].id) if taken else None
            lane.worked(quickly=self._asking.is_quick(took))
            lane.scanned(last, server_now, full=len(taken) >= quota)
            if taken:
                self._report(worker, lane.queue, len(taken))
                worker.receive([Claim(row, token, worker, self._asking.sent_at) for row in taken])

    def _claim_failed(self, quotas: list[Quota], values: dict[str, Any], error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        is_alone = len(quotas) == 1
        for _, lane, quota in quotas:
            lane.failed(quota, now, alone=is_alone)
            if isinstance(error, TimeoutError) and lane.floor_at is None and self._server_now is not None:
                lane.skip(self._server_now)
            if is_alone and quota == 1:
                self._asking.suspect(doubt_of_lane(lane.queue, values, error))

    async def _claim_found(self, open_: Open, wanted: dict[int, tuple["Worker", str]]) -> None:
        token = self._draw_token()
        values = {
            "ids": list(wanted),
            "queues": [queue for _, queue in wanted.values()],
            "ttls": [worker.options.lease_ttl_seconds for worker, _ in wanted.values()],
            "token": token,
        }
        try:
            claimed, _, took = await self._asking.fetch("claim_found", values)
        except Exception as error:
            self._strays.failed(len(wanted))
            if len(wanted) == 1:
                self._asking.suspect(doubt_of_message(values, error))
            else:
                for number, (worker, queue) in wanted.items():
                    open_[worker].put_back({number: queue})
            raise
        if self._asking.is_quick(took):
            self._strays.worked()
        rows = named(ClaimedRow, claimed)
        self._asking.arrived(row.id for row in rows)
        taken: dict[tuple[Worker, str], list[ClaimedRow]] = {}
        for row in sorted(rows, key=_DUE_ORDER):
            taken.setdefault(wanted[row.id], []).append(row)
        for (worker, queue), mine in taken.items():
            self._report(worker, queue, len(mine))
            worker.receive([Claim(row, token, worker, self._asking.sent_at) for row in mine])

    def _report(self, worker: "Worker", queue: str, count: int) -> None:
        self._plans.found(worker)
        if events.Claimed in self._events:
            self._events.emit(events.Claimed(queue, worker.name, count))

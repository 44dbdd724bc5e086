"""Finds out which of many lanes have a message to claim, in one statement that leases nothing.

A hint that names no queue, and a worker's beginning, mean every lane. Where those are more than the worker has room
for, a claim would ask for a few of them at a time, and a message in the last of a thousand queues would wait for
hundreds of claims. So they are probed all at once, and claims go where something was seen. While probes fail,
claims go round as if there were none. Used by `claimer`.
"""

import asyncio

from faststream_outbox._internal.queue.asking import Asking
from faststream_outbox._internal.queue.planning.claim_plan import FEW_LANES, ClaimPlan, Open
from faststream_outbox._internal.queue.planning.lanes import NO_LIMIT, Lane, places
from faststream_outbox._internal.sql.queue_rows import FoundLaneRow
from faststream_outbox._internal.sql.rows import named


class LaneFinder:
    """The claimer's part for lanes of which nothing is known."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._most = NO_LIMIT

    async def step(self, open_: Open, now: float) -> bool:
        """Probe the lanes of one worker, if there are too many to claim from; whether there were."""
        for plan in open_.values():
            if plan.is_unsure and plan.probe_at <= now and (lanes := plan.to_probe(self._most)):
                await self._probe(plan, lanes)
                return True
        return False

    async def _probe(self, plan: ClaimPlan, lanes: list[Lane]) -> None:
        loop = asyncio.get_running_loop()
        values = places(lanes) | {
            "keyed": [lane.keyed for lane in lanes],
            "ttl": plan.options.lease_ttl_seconds,
            "unheard": self._asking.tokens(),
        }
        try:
            answer, _, took = await self._asking.fetch("find_lanes", values)
        except BaseException:
            self._most = max(FEW_LANES, min(len(lanes), self._most) // 4)
            for lane in lanes:
                lane.interrupted()
            plan.probed(loop.time(), 0.0, worked=False)
            raise
        plan.probed(loop.time(), took, worked=True)
        if self._asking.is_quick(took):
            self._most = min(2 * self._most, NO_LIMIT)
        rows = named(FoundLaneRow, answer)
        # There is a row also where no lane has a message.
        server_now, found = rows[0].server_now, {row.n for row in rows}
        for place, lane in enumerate(lanes, start=1):
            if place in found:
                lane.found()
            else:
                lane.scanned(None, server_now, full=False)

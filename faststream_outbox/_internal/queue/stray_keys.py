"""Finds keys that have a message to claim and that no claim knows of.

A lease ran out, a queue was resumed, a transaction took long: then a key's head lies below the floor of its
lane. A lane that has passed everything due is scanned by due time, once and from the beginning: what
waits for later costs nothing. Where that would be too many messages, or the lane is still on its way through
a backlog, the queue's keys are walked in key order instead, however deep each is. Used by `scanner`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.queue.claimer import Claimer
from faststream_outbox._internal.queue.planning.claim_plan import ClaimPlan, LaneName
from faststream_outbox._internal.sql.queue_rows import ClaimableKeyRow, LaneRow, WalkedKeyRow
from faststream_outbox._internal.sql.rows import named

MOST_DUE = 10_000
"""Messages of a lane that are scanned by due time."""
KEYS_PER_WALK = 500
"""Keys that one statement of a walk passes."""

Fetch = Callable[[str, dict[str, Any]], Awaitable[Sequence[Row]]]


class StrayKeys:
    """The scanner's part for messages with keys."""

    def __init__(self, fetch: Fetch, claimer: Claimer, between: Callable[[], Awaitable[None]]) -> None:
        self._fetch = fetch
        self._claimer = claimer
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
            "unheard": self._claimer.unheard_tokens(),
        }
        places = list(wanted.items())
        left: list[tuple[str, list[ClaimPlan]]] = []
        for found in named(ClaimableKeyRow, await self._fetch("claimable_keys", values)):
            (queue, _, _), plans = places[found.n - 1]
            if found.key is not None:
                self._claimer.horizon.seen((queue, found.key), found.id)
                for plan in plans:
                    plan.found_key((queue, found.key), found.priority)
            elif found.has_more:
                left.append((queue, plans))
        self._claimer.wake()
        return left

    async def _walk(self, queue: str, plans: list[ClaimPlan]) -> None:
        """Walk over all keys of a queue, some at a time; they can be claimed meanwhile."""
        values = {
            "queue": queue,
            "keys": KEYS_PER_WALK,
            "ttl": _shortest_lease(plans),
            "held_by_dead": _all_block(plans),
            "unheard": self._claimer.unheard_tokens(),
        }
        while True:
            after = self._walked.get(queue, "")
            rows = named(WalkedKeyRow, await self._fetch("walk_keys", values | {"after": after}))
            for row in rows:
                if row.is_claimable:
                    self._claimer.horizon.seen((queue, row.key), row.id)
                    for plan in plans:
                        plan.found_key((queue, row.key), row.priority)
            self._claimer.wake()
            if len(rows) < KEYS_PER_WALK:
                self._walked.pop(queue, None)
                return
            self._walked[queue] = rows[-1].key
            await self._between()


def _shortest_lease(plans: Sequence[ClaimPlan]) -> float:
    return min(plan.options.lease_ttl_seconds for plan in plans)


def _all_block(plans: Sequence[ClaimPlan]) -> bool:
    return all(plan.options.on_dead == "block" for plan in plans)

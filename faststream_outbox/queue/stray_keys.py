"""Finds keys that have a message to claim and that no claim knows of.

A lease ran out, a queue was resumed, a transaction took long: then a key's head lies below the floor of its
lane. A lane that has passed everything due is looked through by due time, once and from the beginning: what
waits for later costs nothing. Where that would be too many messages, or the lane is still on its way through
a backlog, the queue's keys are walked in key order instead, however deep each is. Used by `scanner`.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from faststream_outbox.queue.claimer import Claimer
from faststream_outbox.queue.intake import Intake, LaneName
from faststream_outbox.sql.wire import Row

MOST_DUE = 10_000
"""Messages of a lane that are looked at by due time."""
KEYS_PER_WALK = 500

Fetch = Callable[[str, dict[str, Any]], Awaitable[Sequence[Row]]]


class ClaimableKey(NamedTuple):
    """A row of `claimable_keys`: the place of the lane that was asked for, from 1 on, and a key; or how it ended."""

    n: int
    key: str | None
    priority: int
    has_more: bool


class StrayKeys:
    """The scanner's eye for keys."""

    def __init__(self, fetch: Fetch, claimer: Claimer, between: Callable[[], Awaitable[None]]) -> None:
        self._fetch = fetch
        self._claimer = claimer
        self._between = between
        """Called after each part of a long walk: other questions must not wait for its end."""
        self._walked: dict[str, str] = {}
        """Where a walk that failed goes on."""

    async def look(self, intakes: Sequence[Intake], names: Sequence[LaneName]) -> None:
        """Give the intakes the keys that they could claim, of lanes with keys that have messages."""
        passed: dict[LaneName, list[Intake]] = {}
        rest: dict[str, list[Intake]] = {}
        for intake in intakes:
            for queue in dict.fromkeys(name[0] for name in names if name[0] in intake.queues):
                mine = [name for name in names if name[0] == queue]
                # A head may have any priority: it is seen for sure only if all lanes of the queue are.
                if all(intake.lane(name).has_passed_all for name in mine):
                    for name in mine:
                        passed.setdefault(name, []).append(intake)
                else:
                    rest.setdefault(queue, []).append(intake)
        if passed:
            for queue, waiting in await self._look_at_due(passed):
                rest.setdefault(queue, []).extend(waiting)
        for queue, waiting in rest.items():
            await self._walk(queue, list(dict.fromkeys(waiting)))

    async def _look_at_due(self, wanted: dict[LaneName, list[Intake]]) -> list[tuple[str, list[Intake]]]:
        """Look through lanes by due time; gives the queues that have too many messages for it."""
        values = {
            "queues": [queue for queue, _, _ in wanted],
            "priorities": [priority for _, priority, _ in wanted],
            "ttls": [_shortest_lease(intakes) for intakes in wanted.values()],
            "held_by_dead": [_all_block(intakes) for intakes in wanted.values()],
            "most": MOST_DUE,
            "unheard": self._claimer.unheard_tokens(),
        }
        places = list(wanted.items())
        left: list[tuple[str, list[Intake]]] = []
        for row in await self._fetch("claimable_keys", values):
            found = ClaimableKey(*row)
            (queue, _, _), intakes = places[found.n - 1]
            if found.key is not None:
                for intake in intakes:
                    intake.found_key((queue, found.key), found.priority)
            elif found.has_more:
                left.append((queue, intakes))
        self._claimer.wake()
        return left

    async def _walk(self, queue: str, intakes: list[Intake]) -> None:
        """Walk over all keys of a queue, some at a time; they can be claimed meanwhile."""
        values = {
            "queue": queue,
            "keys": KEYS_PER_WALK,
            "ttl": _shortest_lease(intakes),
            "held_by_dead": _all_block(intakes),
            "unheard": self._claimer.unheard_tokens(),
        }
        while True:
            rows = await self._fetch("walk_keys", values | {"after": self._walked.get(queue, "")})
            for key, is_claimable, priority in rows:
                for intake in intakes if is_claimable else ():
                    intake.found_key((queue, key), priority)
            self._claimer.wake()
            if len(rows) < KEYS_PER_WALK:
                self._walked.pop(queue, None)
                return
            self._walked[queue] = rows[-1][0]
            await self._between()


def _shortest_lease(intakes: Sequence[Intake]) -> float:
    return min(intake.options.lease_ttl_seconds for intake in intakes)


def _all_block(intakes: Sequence[Intake]) -> bool:
    return all(intake.options.on_dead == "block" for intake in intakes)

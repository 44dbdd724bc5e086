"""Keeps leases alive for as long as their messages are in hand.

One statement renews every lease that is a third of its time old: of messages that run, that wait for
a handler, and whose outcome is being written. A lease that is gone is told, and cancels its handler
if the worker says so. Runs as a service of the client.
"""

import asyncio
from collections.abc import Callable, Iterable

from faststream_outbox.events import Events
from faststream_outbox.events import table as told
from faststream_outbox.queue import clock
from faststream_outbox.queue.claim import Claim
from faststream_outbox.sql import Statements
from faststream_outbox.sql.wire import Wire

FRACTION = 3
SHORTEST_PAUSE = 0.02
LONGEST_PAUSE = 5.0


def pause(ttls: Iterable[float]) -> float:
    """Seconds between two looks at the leases: often enough for the shortest of them."""
    shortest = min(ttls, default=LONGEST_PAUSE * FRACTION * 2)
    return max(SHORTEST_PAUSE, min(LONGEST_PAUSE, shortest / FRACTION / 2))


def due(claims: Iterable[Claim], now: float) -> list[Claim]:
    """The claims whose lease should begin anew."""
    return [
        claim
        for claim in claims
        if not claim.is_lost and now - claim.renewed_at >= claim.worker.options.lease_ttl_seconds / FRACTION
    ]


class Renewer:
    """The one task that renews."""

    def __init__(
        self,
        wire: Wire,
        sql: Statements,
        events: Events,
        claims: Callable[[], Iterable[Claim]],
        ttls: Callable[[], Iterable[float]],
    ) -> None:
        self._wire = wire
        self._sql = sql
        self._events = events
        self._claims = claims
        self._ttls = ttls

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            await asyncio.sleep(pause(self._ttls()))
            now = clock.now()
            if claims := due(self._claims(), now):
                try:
                    await self._renew(claims, now)
                except Exception as error:  # noqa: BLE001 - told, and tried again in a moment
                    self._events.emit(told.ConnectionLost("renew", error))

    async def _renew(self, claims: list[Claim], now: float) -> None:
        values = {
            "ids": [claim.id for claim in claims],
            "tokens": [claim.acquired_token for claim in claims],
        }
        # Whether each lease that stands was renewed; one whose row a transaction holds is tried again soon.
        standing = {row[0]: row[1] for row in await self._wire.fetch(self._sql["renew"], values)}
        for claim in claims:
            if standing.get(claim.id):
                claim.renewed(now)
            elif claim.id not in standing and claim in claim.worker.unsettled and not claim.is_leaving:
                self._lost(claim)
        renewed = sum(standing.values())
        if renewed and told.LeasesRenewed in self._events:
            self._events.emit(told.LeasesRenewed(renewed))

    def _lost(self, claim: Claim) -> None:
        worker = claim.worker
        claim.lose(cancel=worker.options.on_lease_lost == "cancel")
        phase = "running" if claim.was_started else "waiting"
        self._events.emit(told.LeaseLost(claim.queue, worker.name, claim.id, claim.deliveries_count, phase))

"""Leases of messages in flight: renewed, and named in a transaction of the application's.

One statement renews every lease that is a third of its time old: of messages that run, that wait for a handler, and
whose outcome is being written. A lease that is gone is reported, and cancels its handler if the worker's options say
so. The `Renewer` runs as a service of the client.

Handlers that end their messages with their own commit name the leases in it: `named_in` asks for them there,
`refuse_lost` says what of one that is gone. Called by the client.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.caller import CallerConnection
from faststream_outbox._internal.connections.dedicated import Connection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.outage import Outage
from faststream_outbox._internal.queue import clock
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.service import Pulse
from faststream_outbox._internal.sql.queue_rows import RenewedRow
from faststream_outbox._internal.sql.statements import Statements, column, named
from faststream_outbox.errors import LeaseLost

MOST_AT_ONCE = 500
"""Messages of a statement in a handler's transaction: for many more, PostgreSQL would keep a plan made for others."""


async def named_in(opened: CallerConnection, name: str, claims: Sequence[Claim]) -> set[int]:
    """The ids that a statement on the application's connection returns of these claims."""
    found: set[int] = set()
    for start in range(0, len(claims), MOST_AT_ONCE):
        values = leases_of(claims[start : start + MOST_AT_ONCE])
        found.update(column(await opened.fetch(opened.sql("settle", name), values)))
    return found


def leases_of(claims: Sequence[Claim]) -> dict[str, list[Any]]:
    """Ids and tokens, as parameters."""
    return {
        "ids": [claim.id for claim in claims],
        "tokens": [claim.acquired_token for claim in claims],
    }


def refuse_lost(claims: Sequence[Claim]) -> None:
    """Raise `LeaseLost` of the first of these, if there is one."""
    for claim in claims:
        msg = f"The lease of message {claim.id} of {claim.queue!r} is gone; roll this transaction back."
        raise LeaseLost(msg)


FRACTION = 3
"""A lease is renewed after one part of so many."""
SHORTEST_PAUSE = 0.02
LONGEST_PAUSE = 5.0


def pause(ttls: Iterable[float]) -> float:
    """Seconds between two checks of the leases: often enough for the shortest of them."""
    shortest = min(ttls, default=LONGEST_PAUSE * FRACTION * 2)
    return max(SHORTEST_PAUSE, min(LONGEST_PAUSE, shortest / FRACTION / 2))


def due(claims: Iterable[Claim], now: float) -> list[Claim]:
    """The claims whose lease should begin anew."""
    return [
        claim
        for claim in claims
        if not claim.is_lost and now - claim.renewed_at >= claim.worker.options.lease_ttl_seconds / FRACTION
    ]


def renewal_of(claims: Sequence[Claim]) -> dict[str, list[Any]]:
    """What the statement that renews is given of claims."""
    return leases_of(claims) | {"ttls": [claim.worker.options.lease_ttl_seconds for claim in claims]}


class Renewer:
    """The one task that renews."""

    def __init__(
        self,
        connection: Connection,
        sql: Statements,
        events: Events,
        claims: Callable[[], Iterable[Claim]],
        ttls: Callable[[], Iterable[float]],
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._events = events
        self._claims = claims
        self._ttls = ttls
        self.outage = Outage("renew", events, tells_each=True)
        self.pulse = Pulse()

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            self.pulse.beat()
            await asyncio.sleep(pause(self._ttls()))
            now = clock.now()
            if claims := due(self._claims(), now):
                try:
                    await self._renew(claims, now)
                except Exception as error:  # noqa: BLE001 - reported, and tried again in a moment
                    self.outage.failed(error, asyncio.get_running_loop().time())
                else:
                    self.outage.worked(asyncio.get_running_loop().time())

    async def _renew(self, claims: list[Claim], now: float) -> None:
        # Whether each lease that stands was renewed; one whose row a transaction holds is tried again soon.
        rows = await self._connection.fetch(self._sql["renew"], renewal_of(claims))
        standing = {row.id: row.is_renewed for row in named(RenewedRow, rows) if not row.has_run_out}
        for claim in claims:
            if standing.get(claim.id):
                claim.renewed(now)
            elif claim.id not in standing and claim in claim.worker.unsettled and not claim.is_leaving:
                self._lost(claim)
        renewed = sum(standing.values())
        if renewed and events.LeasesRenewed in self._events:
            self._events.emit(events.LeasesRenewed(renewed))

    def _lost(self, claim: Claim) -> None:
        worker = claim.worker
        claim.lose(cancel=worker.options.on_lease_lost == "cancel")
        phase = "running" if claim.was_started else "waiting"
        self._events.emit(events.LeaseWasLost(claim.queue, worker.name, claim.id, claim.deliveries_count, phase))

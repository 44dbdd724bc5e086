"""Looks from the beginning, beside the claims and on a connection of its own.

Which lanes there are, what lies below the claimers' floors, which keys have a head to claim, and when
the next message falls due. It takes nothing: what it finds, the claimer claims. However long it takes
and however often it fails, no claim waits for it. Runs as a service of the client.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from faststream_outbox.events import Events
from faststream_outbox.queue.claimer import Claimer
from faststream_outbox.queue.intake import MOST_STRAYS, Intake, LaneName
from faststream_outbox.queue.lane import NEVER, Claimable, Lane
from faststream_outbox.queue.outage import Outage
from faststream_outbox.queue.stray_keys import StrayKeys
from faststream_outbox.sql import Statements
from faststream_outbox.sql.wire import Row, Wire

SCAN_TIMEOUT = 300.0
"""Seconds that a scan may take: it stands in nobody's way, and a million dead entries take their time."""


class Scanner:
    """The one task that scans for a claimer."""

    def __init__(self, wire: Wire, sql: Statements, events: Events, claimer: Claimer) -> None:
        self._wire = wire
        self._sql = sql
        self._claimer = claimer
        self._wake = asyncio.Event()
        self._until = NEVER
        self._scans = Outage("scan", events)
        self._dues = Outage("next_due", events)
        self._stray_keys = StrayKeys(self._fetch, claimer, self._tell_dues)
        claimer.at_rest = self._rouse

    def _rouse(self) -> None:
        intakes = self._claimer.open().values()
        if any(intake.scan_at < self._until for intake in intakes) or self._unknown():
            self._wake.set()

    def _late(self, now: float) -> list[Intake]:
        """Whose look is due, and with them those whose look would be soon: one look is enough for all."""
        intakes = self._claimer.open().values()
        if not any(intake.scan_at <= now for intake in intakes):
            return []
        return [intake for intake in intakes if intake.scan_at <= now or intake.joins_scan(now)]

    def _unknown(self) -> list[Lane]:
        lanes = (lane for intake in self._claimer.open().values() for lane in intake.lanes.values())
        return [lane for lane in lanes if not lane.is_wet and not lane.is_due_known]

    async def run(self) -> None:
        """Scan until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            await self._tell_dues()
            now = loop.time()
            if (late := self._late(now)) and not self._scans.holds(now):
                await self._try(self._scan(late), self._scans)
            elif not self._unknown() or self._dues.holds(now):
                await self._sleep(now)

    async def _tell_dues(self) -> None:
        unknown = self._unknown()
        if unknown and not self._dues.holds(asyncio.get_running_loop().time()):
            await self._try(self._next_due(unknown), self._dues)

    async def _try(self, looking: Any, outage: Outage) -> None:
        loop = asyncio.get_running_loop()
        try:
            await looking
        except Exception as error:  # noqa: BLE001 - told, and tried again
            outage.failed(error, loop.time())
        else:
            outage.worked(loop.time())
        self._claimer.wake()

    async def _sleep(self, now: float) -> None:
        times = [intake.scan_at for intake in self._claimer.open().values()]
        times += [outage.retry_at for outage in (self._scans, self._dues) if outage.holds(now)]
        # What is late now waits for the end of an outage.
        self._until = min((at for at in times if at > now), default=NEVER)
        try:
            async with asyncio.timeout(None if self._until == NEVER else self._until - now):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _fetch(self, name: str, values: dict[str, Any]) -> Sequence[Row]:
        return await self._wire.fetch(self._sql[name], values)

    async def _next_due(self, lanes: list[Lane]) -> None:
        values = {
            "queues": [lane.queue for lane in lanes],
            "priorities": [lane.priority for lane in lanes],
            "keyed": [lane.keyed for lane in lanes],
            "floor_ats": [lane.floor_at for lane in lanes],
        }
        for lane in lanes:
            # Before the question: a hint that comes meanwhile asks for another.
            lane.is_due_known = True
        try:
            rows = await self._fetch("next_due", values)
        except BaseException:
            for lane in lanes:
                lane.is_due_known = False
            raise
        now = asyncio.get_running_loop().time()
        due = {(row[0], row[1], row[2]): float(row[3]) for row in rows}
        for lane in lanes:
            seconds = due.get((lane.queue, lane.priority, lane.keyed))
            if seconds is not None:
                lane.note_due(now + seconds)

    async def _scan(self, intakes: list[Intake]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        queues = list(dict.fromkeys(queue for intake in intakes for queue in intake.queues))
        rows = await self._fetch("survey", {"queues": queues})
        names: list[LaneName] = [(row[0], row[2], row[1]) for row in rows]
        for intake in intakes:
            for name in names:
                if name[0] in intake.queues:
                    intake.lane(name)
            intake.claims_from = 0.0
        self._claimer.wake()
        await self._look_below(intakes)
        await self._stray_keys.look(intakes, [name for name in names if name[2]])
        now = loop.time()
        for intake in intakes:
            seen = dict.fromkeys(name for name in names if name[0] in intake.queues)
            intake.scanned(seen, now, now - began)

    async def _look_below(self, intakes: list[Intake]) -> None:
        places = [
            (intake, lane)
            for intake in intakes
            for lane in intake.lanes.values()
            if not lane.keyed and lane.floor_at is not None
        ]
        if not places:
            return
        lanes = [lane for _, lane in places]
        values = {
            "queues": [lane.queue for lane in lanes],
            "priorities": [lane.priority for lane in lanes],
            "from_ats": [None] * len(lanes),
            "from_ids": [0] * len(lanes),
            "to_ats": [lane.floor_at for lane in lanes],
            "to_ids": [lane.floor_id for lane in lanes],
            "ttls": [intake.options.lease_ttl_seconds for intake, _ in places],
            "most": MOST_STRAYS,
            "unheard": self._claimer.unheard_tokens(),
        }
        found: dict[int, list[Claimable]] = {}
        for row in await self._fetch("claimable", values):
            claimable = Claimable(*row)
            found.setdefault(claimable.n, []).append(claimable)
        for place, rows in found.items():
            intake, lane = places[place - 1]
            intake.found_below(lane, [(row.next_attempt_at, row.id) for row in rows])

"""A reader: one member of a group, from the leases that it holds to the batches that it reads.

Reads in the order of the log, from the spans that are furthest behind; what a filter does not match is
passed over, and the cursor with it. What becomes of a batch is written by `settling`. Driven by
`dispatching`, `consumer` and `iterating`; never holds a transaction open.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from faststream_outbox.events import table as told
from faststream_outbox.log.batch import Batch
from faststream_outbox.log.blocked import PARKED
from faststream_outbox.log.delivery import Delivery
from faststream_outbox.log.holding import Group
from faststream_outbox.log.options import ReadOptions
from faststream_outbox.log.settling import Settling
from faststream_outbox.log.slots import SLOTS, prefix_of
from faststream_outbox.log.spans import Cursor, Slots, Span, furthest_behind
from faststream_outbox.log.timeline import window
from faststream_outbox.sql import statements

if TYPE_CHECKING:
    from faststream_outbox.log.client import LogClient

WIDEST_WINDOW = 20_000
PROGRESS_SECONDS = 1.0


class Reader(Settling):
    """One member of a group."""

    def __init__(
        self, client: "LogClient", group: Group, options: ReadOptions, *, fixed: Slots | None = None, name: str = ""
    ) -> None:
        super().__init__(client, group, options, fixed=fixed, name=name)
        self.wake = asyncio.Event()
        self.is_alive: Callable[[], bool] = lambda: True
        """Whether somebody drives it."""
        self._wide = 1
        self._held = 0
        self._log = statements("log", client.names)

    async def arrange(self) -> None:
        """Take and give up slots, as is fair, and learn which keys wait."""
        self.is_unsettled = False
        holding = self.holding
        if self._unwritten:
            await self.write_progress()
        if await holding.rebalance():
            # Others wait for what was given up.
            await self.client.call()
            self.is_unsettled = False
        if holding.spans:
            await self._load_blocked()
        if holding.size != self._held:
            self._held = holding.size
            event = told.SlotsHeld(self.group.name, self.group.uri, str(holding.me), self._held, holding.members)
            self.client.events.emit(event)

    async def enter(self) -> None:
        """Become a member, without a share yet."""
        if self.holding.fixed is None and await self.holding.heartbeat():
            await self.client.call()
        if self.options.start != "earliest":
            # Makes the group: what is published from now on lies behind its place.
            await self.holding.seen()

    async def join(self) -> None:
        """Become a member, and take a share."""
        await self.enter()
        await self.arrange()

    async def keep(self) -> None:
        """Renew what is held; who else lives, and what a dead one left, is looked at before the next batch."""
        holding = self.holding
        await holding.renew()
        if holding.fixed is None:
            await holding.heartbeat()
        if not holding.is_complete:
            self.is_unsettled = True
            self.wake.set()

    async def leave(self) -> None:
        """Give everything back, with what was passed over written, and be a member no more."""
        await self.write_progress()
        await self.holding.leave()
        if self.holding.fixed is None:
            await self.client.call()

    async def next_batch(self, limit: int | None = None, *, is_idle: bool = False) -> Batch | None:
        """What to handle next: what waited and is due now, and what is next in the log, by turns."""
        size = limit or self.options.batch_size
        due = self.blocked.due(asyncio.get_running_loop().time()) if self.blocked.keys else []
        if not due:
            return await self._fresh_batch(size, is_idle=is_idle)
        if self.is_turn_of_fresh:
            return await self._fresh_batch(size, is_idle=is_idle) or await self._due_batch(due, size)
        return await self._due_batch(due, size) or await self._fresh_batch(size, is_idle=is_idle)

    @property
    def is_turn_of_fresh(self) -> bool:
        """Whether the group had its turn with what waited: one that fails again at once must not be all it reads."""
        return self.group in self.client.had_waited

    async def _due_batch(self, keys: list[str], size: int) -> Batch | None:
        values = {**self.group.values, "keys": keys[:size], "limit": size, "hold": self.blocked.hold}
        rows, asked = await self.client.read(self._asides["fetch_aside"], values)
        ready = list(_in_turn(rows))[:size]
        empty = set(keys[:asked]) - {row[2] for row in rows}
        if empty:
            # An operator has ended them, or retention deleted their messages while the group was away.
            await self._give_up(sorted(empty))
        elif not ready:
            # An operator has changed what comes first.
            await self._load_blocked()
        if not ready:
            return None
        deliveries = [Delivery.waiting(row, self.group.uri) for row in ready]
        self.client.had_waited.add(self.group)
        return Batch(deliveries, list(self.holding.spans.values()), Cursor(0, 0), is_aside=True)

    async def _give_up(self, keys: list[str]) -> None:
        """End what waits under these keys and is not there any more."""
        rows = await self._persist(self._asides["drop_missed"], {**self.group.values, "keys": keys})
        if rows:
            positions = tuple(sorted(row[0] for row in rows))
            self.client.events.emit(told.MessagesMissed(self.group.name, self.group.uri, positions))
        await self._load_blocked()

    async def _fresh_batch(self, size: int, *, is_idle: bool) -> Batch | None:
        timeline, wire = self.client.timeline, self.client.wire
        self.client.had_waited.discard(self.group)
        halted = self.blocked.halted() if self.blocked.keys else ()
        while not self.is_stopping:
            readable = [s for s in self.holding.spans.values() if not (halted and s.size == 1 and s.lo in halted)]
            behind, until = furthest_behind(readable)
            if not behind:
                return None
            cursor = behind[0].cursor
            if not is_idle and not timeline.may_follow(cursor):
                return None
            owned = sum(span.size for span in behind)
            ticks = await timeline.after(wire, cursor)
            found = window(ticks, cursor, min(WIDEST_WINDOW, size * self._wide * SLOTS // owned), until)
            if found is None:
                if until is None:
                    return None
                # Nothing lies between the two places: they are the same, unless the one ahead is not of this log.
                stamps = {tick.number: tick.at for tick in ticks}
                if until.tick not in stamps and not (ticks and ticks[-1].number > until.tick):
                    return None
                self._note(behind, until, stamps.get(until.tick))
                continue
            slots = None if owned == SLOTS else [slot for span in behind for slot in range(span.lo, span.hi + 1)]
            values = {
                "ticks": found.ticks,
                "los": found.los,
                "his": found.his,
                "slots": slots,
                "uri": self.group.uri,
                "prefix": prefix_of(self.group.uri),
                "limit": size,
            }
            rows, asked = await self.client.read(self._log["fetch"], values)
            end = Cursor(rows[-1][0], rows[-1][1]) if len(rows) == asked else found.end
            if rows:
                # A window as wide as it takes to fill a batch, as far as the last one can tell.
                self._wide = max(1, self._wide // 2) if len(rows) > size // 2 else self._wide
                topic = self.group.uri
                return Batch([Delivery(row, topic) for row in rows], behind, end, found.stamps)
            self._wide = min(1024, self._wide * 4)
            self._note(behind, end, found.stamps[end.tick])
            if asyncio.get_running_loop().time() - self._moved_at > PROGRESS_SECONDS:
                await self.write_progress()
        return None

    def _note(self, spans: Sequence[Span], cursor: Cursor, stamp: datetime | None) -> None:
        """Remember that there was nothing for us up to here; written with the next batch, or by and by.

        A place in a tick that is not there any more is not written: the next one that is there will be.
        """
        for span in spans:
            known = self.holding.spans.get(span.lo)
            if known is not None and known.epoch == span.epoch:
                self.holding.spans[span.lo] = span.at(cursor, stamp)
                if stamp is not None:
                    self._unwritten.add(span.lo)


def _in_turn(rows: Iterable[Any]) -> Iterator[Any]:
    """Of messages that wait, those that may run: each key up to the first that is parked or not due."""
    stopped: set[str] = set()
    for row in rows:
        if row[2] in stopped:
            continue
        if row[12] == PARKED or (row[13] or 0.0) > 0.0:
            stopped.add(row[2])
        else:
            yield row

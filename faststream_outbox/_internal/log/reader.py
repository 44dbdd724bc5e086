"""A reader: one member of a group, from the leases that it holds to the batches that it reads.

Reads in the order of the log, from the spans that are furthest behind; what a filter does not match is
passed over, and the cursor with it. What becomes of a batch is written by `settler`. Driven by `Outbox.dispatch`,
`consumer` and `iterating`; never holds a transaction open.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from faststream_outbox._internal import events
from faststream_outbox._internal.log.blocked import PARKED
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.member import Batch, Member
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.ordering.timeline import window
from faststream_outbox._internal.log.settler import Settler
from faststream_outbox._internal.log.sharing.calls import changed
from faststream_outbox._internal.log.sharing.leases import Group
from faststream_outbox._internal.log.sharing.slots import SLOTS, Cursor, Slots, furthest_behind, slots_of
from faststream_outbox._internal.log.tail import PROGRESS_SECONDS, WIDEST_WINDOW
from faststream_outbox._internal.sql.log_rows import WaitingMessage
from faststream_outbox._internal.sql.statements import column, statements

if TYPE_CHECKING:
    from faststream_outbox._internal.log.client import LogClient


class Reader(Member):
    """One member of a group, which reads."""

    def __init__(
        self, client: "LogClient", group: Group, options: ReadOptions, *, fixed: Slots | None = None, name: str = ""
    ) -> None:
        member = client.new_member(group, options, fixed=fixed, name=name)
        super().__init__(group, options, member.leases, name)
        self.client = client
        self.settler = Settler(self, client)
        self._wide = 1
        self._held = 0
        self._admin = statements("group_admin", client.names)
        self._deferrals = statements("deferred", client.names)

    async def arrange(self) -> None:
        """Take and give up slots, as is fair, and learn which keys wait."""
        self.is_unsettled = False
        leases = self.leases
        if self.unwritten:
            await self.settler.write_progress()
        gave = False
        if await self.is_paused():
            # Its place is kept; what is in flight elsewhere is finished there.
            await leases.release()
        else:
            async with self.client.sharing(self.group):
                gave = await leases.rebalance()
        if gave:
            # Others wait for what was given up.
            await self.client.call(self.group)
            self.is_unsettled = False
        if leases.spans:
            await self.settler.load_blocked()
        if leases.size != self._held:
            self._held = leases.size
            event = events.SlotsHeld(self.group.name, self.group.uri, str(leases.me), self._held, leases.members)
            self.client.events.emit(event)

    async def is_paused(self) -> bool:
        """Whether an operator has paused the group."""
        return any(column(await self.client.connection.fetch(self._admin["is_paused"], self.group.values)))

    async def enter(self) -> None:
        """Become a member, without a share yet."""
        if self.leases.fixed is None and await self.leases.heartbeat():
            await self.client.call(self.group)
        await self.begin()

    async def join(self) -> None:
        """Become a member, and take a share."""
        await self.enter()
        await self.arrange()

    async def renew(self) -> None:
        """Renew what is held; who else lives, and what a dead one left, is arranged before the next batch."""
        await self.client.renewing.renew([self])

    async def leave(self) -> None:
        """Give everything back, with what was passed over written, and be a member no more."""
        self.portion = None
        await self.settler.write_progress()
        await self.leases.leave(changed(self.group, self.client.calls.sender))
        if self.leases.fixed is None:
            self.client.unsettle(self.group.digest)

    async def wait(self) -> bool:
        """Wait until there may be something to do; whether to read without having been called."""
        tail = self.client.tail
        is_seated = tail.join(self)
        pause = None if is_seated else self.options.poll_interval
        due = self.blocked.next_due()
        if due is not None:
            left = max(0.001, due - asyncio.get_running_loop().time())
            pause = left if pause is None else min(pause, left)
        is_called = False
        try:
            async with asyncio.timeout(pause):
                await self.wake.wait()
            is_called = True
            self.wake.clear()
        except TimeoutError:
            pass
        finally:
            tail.leave(self)
        await tail.written(self)
        return not is_called and not is_seated

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
        slots = [self.blocked.keys[key].slot for key in keys[:size]]
        values = {**self.group.values, "keys": keys[:size], "slots": slots, "limit": size}
        statement = self._deferrals["fetch_deferred" if self.blocked.hold else "fetch_waiting"]
        rows, asked = await self.client.fetcher.read(statement, WaitingMessage, values)
        ready = list(_in_turn(rows))[:size]
        empty = set(keys[:asked]) - {row.uri for row in rows}
        if empty:
            # An operator has ended them, or retention deleted their messages while the group was away.
            await self.settler.give_up(sorted(empty))
        elif not ready:
            # An operator has changed what comes first.
            await self.settler.load_blocked()
        if not ready:
            return None
        deliveries = [Delivery.waiting(row, self.group.uri) for row in ready]
        self.client.had_waited.add(self.group)
        return Batch(deliveries, list(self.leases.spans.values()), Cursor(0, 0), is_deferred=True)

    async def _fresh_batch(self, size: int, *, is_idle: bool) -> Batch | None:
        timeline, connection = self.client.timeline, self.client.connection
        self.client.had_waited.discard(self.group)
        self.heard = self.client.tail.heard
        while not self.is_stopping:
            self.advanced()
            self._forget_places_of_another_log()
            batch = self._handed_batch(size)
            if batch is not None:
                return batch
            behind, until = furthest_behind(self.readable())
            if not behind:
                return None
            cursor = behind[0].cursor
            if not is_idle and not timeline.may_follow(cursor):
                return None
            owned = sum(span.size for span in behind)
            ticks = await timeline.after(connection, cursor)
            if timeline.of(connection) != self.generation:
                continue
            found = window(ticks, cursor, min(WIDEST_WINDOW, size * self._wide * SLOTS // owned), until)
            if found is None:
                if until is None:
                    return None
                # Nothing lies between the two places: they are the same, unless the one ahead is not of this log.
                stamps = {tick.number: tick.at for tick in ticks}
                if until.tick not in stamps and not (ticks and ticks[-1].number > until.tick):
                    return None
                self.pass_over(behind, until, stamps.get(until.tick))
                continue
            rows, end = await self.client.fetcher.read_window(found, {self.group.uri: slots_of(behind)}, size)
            if timeline.of(connection) != self.generation:
                continue
            if rows:
                # A window as wide as it takes to fill a batch, as far as the last one can tell.
                self._wide = max(1, self._wide // 2) if rows[0].found > size // 2 else self._wide
                topic = self.group.uri
                return Batch([Delivery(row, topic) for row in rows], behind, end, found.stamps)
            self._wide = min(1024, self._wide * 4)
            self.pass_over(behind, end, found.stamps[end.tick])
            if asyncio.get_running_loop().time() - self.settler.moved_at > PROGRESS_SECONDS:
                await self.settler.write_progress()
        return None

    def _handed_batch(self, size: int) -> Batch | None:
        """What was read for it while it waited, if it still stands where it did."""
        portion, self.portion = self.portion, None
        if portion is None or portion.generation != self.generation:
            return None
        spans = portion.of({span.lo: span for span in self.readable()})
        if spans is None:
            return None
        taken, self.portion = portion.first(size)
        topic = self.group.uri
        return Batch([Delivery(row, topic) for row in taken.rows], spans, taken.end, taken.stamps)

    def _forget_places_of_another_log(self) -> None:
        """Begin again where cursors are written, if the server may be another one than it was.

        On one that was behind, other messages come under the numbers that were passed over and not written yet.
        """
        generation = self.client.timeline.of(self.client.connection)
        if generation == self.generation:
            return
        self.generation = generation
        self.unwritten.clear()
        for lo, span in list(self.leases.spans.items()):
            if span.written is not None:
                self.leases.spans[lo] = replace(span, cursor=span.written, written=None, stamp=None)


def _in_turn(rows: Iterable[WaitingMessage]) -> Iterator[WaitingMessage]:
    """Of messages that wait, those that may run: each key up to the first that is parked or not due."""
    stopped: set[str] = set()
    for row in rows:
        if row.uri in stopped:
            continue
        if row.state == PARKED or (row.due_in or 0.0) > 0.0:
            stopped.add(row.uri)
        else:
            yield row

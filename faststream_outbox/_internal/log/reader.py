"""A reader: from the leases that a member holds to the batches that are read for it.

Reads in the order of the log, from the spans that are furthest behind; what a filter does not match is passed over,
and the cursor with it. Never holds a transaction open. What becomes of a batch is written by `settler`. Driven by
`worker`, by `dispatching` and by `Outbox.dispatch`.
"""

import asyncio
from collections.abc import Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING

from faststream_outbox._internal import events
from faststream_outbox._internal.log.blocked import PARKED
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.member import Batch, Member
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.ordering.timeline import window
from faststream_outbox._internal.log.settler import Settler
from faststream_outbox._internal.log.sharing.slots import SLOTS, Cursor, Group, Slots, furthest_behind, slots_of
from faststream_outbox._internal.log.tail import PROGRESS_SECONDS, WIDEST_WINDOW
from faststream_outbox._internal.service import called
from faststream_outbox._internal.sql.log_rows import WaitingMessage
from faststream_outbox._internal.sql.statements import column, statements

if TYPE_CHECKING:
    from faststream_outbox._internal.log.client import LogClient


SHORTEST_WAIT = 0.001
"""Seconds to wait for what is due already by this clock, and not yet by the server's."""


class Reader:
    """Reads for one member."""

    def __init__(self, member: Member, settler: Settler, client: "LogClient") -> None:
        self.member = member
        self.settler = settler
        self._client = client
        self._wide = 1
        self._held = 0
        self._admin = statements("group_admin", client.names)
        self._deferrals = statements("deferred", client.names)

    @classmethod
    def of(
        cls, client: "LogClient", group: Group, options: ReadOptions, *, fixed: Slots | None = None, name: str = ""
    ) -> "Reader":
        """A reader for a new member of a group, which has a settler of its own."""
        member = client.new_member(group, options, fixed=fixed, name=name)
        return cls(member, Settler(member, client), client)

    async def arrange(self) -> None:
        """Take and give up slots, as is fair, and learn which keys wait."""
        member = self.member
        member.arranged()
        group, leases = member.group, member.leases
        if member.unwritten:
            await self.settler.write_progress()
        gave = False
        if await self.is_paused():
            # Its place is kept; what is in flight elsewhere is finished there.
            await leases.release()
        else:
            async with self._client.sharing(group):
                gave = await leases.rebalance()
        if gave:
            # Others wait for what was given up.
            await self._client.call(group)
            member.arranged()
        if leases.spans:
            await self.settler.load_blocked()
        if leases.size != self._held:
            self._held = leases.size
            self.settler.emit(events.SlotsHeld(group.name, group.uri, str(leases.me), self._held, leases.members))

    async def is_paused(self) -> bool:
        """Whether an operator has paused the group."""
        values = self.member.group.values
        return any(column(await self._client.connection.fetch(self._admin["is_paused"], values)))

    async def enter(self) -> None:
        """Have the member be one of its group, without a share yet."""
        member = self.member
        if member.leases.fixed is None and await member.leases.heartbeat():
            await self._client.call(member.group)
        await self._client.begin(member)

    async def join(self) -> None:
        """Have the member be one of its group, and take a share."""
        await self.enter()
        await self.arrange()

    async def leave(self) -> None:
        """Give everything back, with what was passed over written; it is a member no more."""
        member = self.member
        member.hand(None)
        await self.settler.write_progress()
        await member.leases.leave(self._client.call_of(member.group))
        if member.leases.fixed is None:
            self._client.unsettle(member.group.digest)

    async def wait(self) -> bool:
        """Wait until there may be something to do; whether to read without having been called."""
        member, tail = self.member, self._client.tail
        now, is_seated = asyncio.get_running_loop().time(), tail.join(member)
        until = inf if is_seated else now + member.options.poll_interval
        due = member.blocked.next_due()
        if due is not None:
            until = min(until, max(due, now + SHORTEST_WAIT))
        try:
            is_called = await called(member.wake, until)
        finally:
            tail.leave(member)
        if is_called:
            member.wake.clear()
        await tail.written(member)
        return not is_called and not is_seated

    async def next_batch(self, limit: int | None = None, *, is_idle: bool = False) -> Batch | None:
        """What to handle next: what waited and is due now, and what is next in the log, by turns."""
        blocked = self.member.blocked
        size = limit or self.member.options.batch_size
        due = blocked.due(asyncio.get_running_loop().time()) if blocked.keys else []
        if not due:
            return await self._fresh_batch(size, is_idle=is_idle)
        if self.is_turn_of_fresh:
            return await self._fresh_batch(size, is_idle=is_idle) or await self._due_batch(due, size)
        return await self._due_batch(due, size) or await self._fresh_batch(size, is_idle=is_idle)

    @property
    def is_turn_of_fresh(self) -> bool:
        """Whether the group had its turn with what waited: one that fails again at once must not be all it reads."""
        return self.member.group in self._client.had_waited

    async def _due_batch(self, keys: list[str], size: int) -> Batch | None:
        group, blocked = self.member.group, self.member.blocked
        slots = [blocked.keys[key].slot for key in keys[:size]]
        values = {**group.values, "keys": keys[:size], "slots": slots, "limit": size}
        statement = self._deferrals["fetch_deferred" if blocked.hold else "fetch_waiting"]
        rows, asked = await self._client.fetcher.read(statement, WaitingMessage, values)
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
        deliveries = [Delivery.waiting(row, group.uri) for row in ready]
        self._client.had_waited.add(group)
        return Batch(deliveries, list(self.member.leases.spans.values()), Cursor(0, 0), is_deferred=True)

    async def _fresh_batch(self, size: int, *, is_idle: bool) -> Batch | None:
        client, member = self._client, self.member
        timeline, connection, topic = client.timeline, client.connection, member.group.uri
        client.had_waited.discard(member.group)
        member.heard = client.tail.heard
        while not member.is_stopping:
            member.advanced()
            member.reads_log(timeline.of(connection))
            batch = member.handed_batch(size)
            if batch is not None:
                return batch
            behind, until = furthest_behind(member.readable())
            if not behind:
                return None
            cursor = behind[0].cursor
            if not is_idle and not timeline.may_follow(cursor):
                return None
            owned = sum(span.size for span in behind)
            ticks = await timeline.after(connection, cursor)
            if timeline.of(connection) != member.generation:
                continue
            found = window(ticks, cursor, min(WIDEST_WINDOW, size * self._wide * SLOTS // owned), until)
            if found is None:
                if until is None:
                    return None
                # Nothing lies between the two places: they are the same, unless the one ahead is not of this log.
                stamps = {tick.number: tick.at for tick in ticks}
                if until.tick not in stamps and not (ticks and ticks[-1].number > until.tick):
                    return None
                member.pass_over(behind, until, stamps.get(until.tick))
                continue
            rows, end = await client.fetcher.read_window(found, {topic: slots_of(behind)}, size)
            if timeline.of(connection) != member.generation:
                continue
            if rows:
                # A window as wide as it takes to fill a batch, as far as the last one can tell.
                self._wide = max(1, self._wide // 2) if rows[0].found > size // 2 else self._wide
                return Batch([Delivery(row, topic) for row in rows], behind, end, found.stamps)
            self._wide = min(1024, self._wide * 4)
            member.pass_over(behind, end, found.stamps[end.tick])
            if asyncio.get_running_loop().time() - self.settler.moved_at > PROGRESS_SECONDS:
                await self.settler.write_progress()
        return None


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

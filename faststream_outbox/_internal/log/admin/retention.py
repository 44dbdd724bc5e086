"""Retention: what is old and read by every living group goes away.

Never past the slowest living group or a gap. A message that is deferred keeps its own row and its tick, and nothing
else. A group that has not been heard of for a configured time stops holding messages back, and that is reported, once
by a process, and again after it had come back; a paused one goes on. Deletes in slices, each in a transaction of its
own; or drops whole partitions, where the log has them. That what must stay is still the same is found out anew for each
of them, under a lock that keeps groups where they are. Called by `Outbox.clean`.

`Upkeep` is what the janitor does for a log: that, and partitions ahead of the numbers, as large as the newest one and
as many as ten rounds of the last growth take, so that nobody who publishes meets a missing one. Made by the log's
client where it was given a `Retention`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.janitor import Chore, Janitor, Retention
from faststream_outbox._internal.log.admin.partitions import Floor, Partitions, find_floor, newest_size, undisturbed
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.log_admin_rows import DeadGroup, DeletedSlice, DeletedTicks
from faststream_outbox._internal.sql.statements import ShapeT, column, named, statements
from faststream_outbox.errors import InvalidOption

if TYPE_CHECKING:
    from faststream_outbox._internal.log.client import LogClient


SLICE = 10_000
NOWHERE = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What went away."""

    messages: int
    ticks: int
    partitions: int
    floor: int


async def clean(
    connection: DedicatedConnection,
    names: LogNames,
    emitter: Events,
    *,
    older_than: timedelta,
    group_expires_after: timedelta,
    partitions: Partitions | None = None,
    expired: set[tuple[str, str]] | None = None,
) -> Cleaned:
    """Delete messages that are older and that no living group needs: slice by slice, or by whole partitions.

    Groups of `expired` were reported before; afterwards it has those that are expired now.
    """
    if older_than < timedelta(0) or group_expires_after <= timedelta(0):
        msg = "older_than and group_expires_after must be positive times."
        raise InvalidOption(msg)
    cleaning = _Cleaning(connection, names, older_than.total_seconds(), group_expires_after.total_seconds())
    dead = named(DeadGroup, await cleaning.ask("dead_groups", {"group_seconds": cleaning.group_seconds}))
    known = set[tuple[str, str]]() if expired is None else expired
    for group in dead:
        if (group.consumer_group, group.uri) not in known:
            emitter.emit(events.GroupExpired(group.consumer_group, group.uri, group.idle))
    known.clear()
    known.update((group.consumer_group, group.uri) for group in dead)
    deleted, dropped = 0, list[str]()
    if partitions is None:
        deleted, floor, first, reached = await cleaning.delete()
    else:
        dropped += await partitions.drop(older_than, group_expires_after=group_expires_after)
        floor = await find_floor(cleaning.ask, cleaning.group_seconds)
        first, reached = await cleaning.first_message(), floor.first_kept
    ticks = await cleaning.delete_ticks(floor.first_kept if first is None else min(first, floor.first_kept), reached)
    return Cleaned(deleted, ticks, len(dropped), floor.first_kept)


class _Cleaning:
    """One cleaning of one log."""

    def __init__(self, connection: DedicatedConnection, names: LogNames, age: float, group_seconds: float) -> None:
        self._connection = connection
        self._sql = statements("retention", names)
        self._age = age
        self._limit = SLICE
        self.group_seconds = group_seconds

    async def ask(self, name: str, values: dict[str, Any]) -> Sequence[Row]:
        """Run one of the statements about retention."""
        return await self._connection.fetch(self._sql[name], values)

    async def first_message(self) -> int | None:
        """The position of the first message that is there."""
        found: int | None
        (found,) = column(await self.ask("first_message", {}))
        return found

    async def delete(self) -> tuple[int, Floor, int | None, int]:
        """Delete messages.

        Gives how many went, from where on they must stay, the first that stayed below that, and how far was looked.
        """
        found = await self.first_message()
        lowest = NOWHERE if found is None else found
        floor = await find_floor(self.ask, self.group_seconds, first=lowest)
        deleted, after, first = 0, -1, None
        while True:
            values = {**floor.place, "floor": floor.first_kept, "after": after, "age": self._age}
            done = await self._slice(DeletedSlice, "delete_slice", values)
            if not done.may:
                # A group was put back, or came back: it needs what the others do not.
                floor = await find_floor(self.ask, self.group_seconds, first=lowest)
                continue
            deleted += done.gone
            first = done.kept if first is None else first
            if done.seen < self._limit or done.last is None:
                return deleted, floor, first, floor.first_kept
            after = done.last
            if not done.old:
                return deleted, floor, first, after

    async def delete_ticks(self, first: int, reached: int) -> int:
        """Delete ticks without a message; how many went.

        Nothing is left below the first position, and nothing was deleted beyond the one that was reached.
        """
        deleted = after = 0
        while True:
            done = await self._slice(DeletedTicks, "delete_ticks", {"first": first, "reached": reached, "after": after})
            deleted += done.gone
            if done.seen < self._limit or done.last is None:
                return deleted
            after = done.last

    async def _slice(self, shape: type[ShapeT], name: str, values: dict[str, Any]) -> ShapeT:
        """Run one slice under the lock on retention; of half as many where so many take too long."""

        async def attempt() -> Sequence[Row]:
            asked = {**values, "group_seconds": self.group_seconds, "limit": self._limit}
            try:
                results = await self._connection.fetch_each(
                    [(self._sql["lock_retention"], {}), (self._sql[name], asked)]
                )
            except TimeoutError:
                if self._limit == 1:
                    raise
                # Large messages take long: so many would never go.
                self._limit //= 2
                return [()]
            return results[1] if len(results) > 1 else []

        # Patience with whoever seeks begins anew after a slice that took too long.
        row: Row = ()
        while not row:
            (row,) = await undisturbed(attempt)
        (done,) = named(shape, [row])
        return done


SIZE = 1_000_000
"""Positions of the first partition, where nobody has made one yet."""
AHEAD = 2
ROUNDS_AHEAD = 10


class Upkeep:
    """The chores of one log."""

    def __init__(
        self, client: "LogClient", retention: Retention, guard: DedicatedConnection, connection: DedicatedConnection
    ) -> None:
        self._client = client
        self._retention = retention
        self._connection = connection
        self._log = client.names.places()["log"]
        self._drawn: int | None = None
        self._expired: set[tuple[str, str]] = set()
        chores: list[Chore] = []
        if client.tables.is_partitioned:
            chores.append(Chore("partitions of " + self._log, self.make_partitions))
        if retention.messages is not None:
            chores.append(Chore("retention of " + self._log, self.clean))
        self.janitor = Janitor(
            guard,
            (statements("retention", client.names)["lock_janitor"], self._log),
            chores,
            client.events,
            every=retention.every.total_seconds(),
            close=connection.close,
        )

    async def make_partitions(self) -> None:
        """Make partitions ahead of the numbers."""
        client = self._client
        size = await newest_size(client.engine, client.tables) or SIZE
        partitions = Partitions(client.engine, client.tables, size)
        drawn = await partitions.drawn()
        growth = 0 if self._drawn is None else max(0, drawn - self._drawn)
        self._drawn = drawn
        made = await partitions.ensure(max(AHEAD, -(-ROUNDS_AHEAD * growth // size)))
        if made:
            client.events.emit(events.PartitionsMade(self._log, tuple(made)))

    async def clean(self) -> None:
        """Delete what is old and read."""
        client, keep = self._client, self._retention.messages
        if keep is None:
            return
        cleaned = await clean(
            self._connection,
            client.names,
            client.events,
            older_than=keep,
            group_expires_after=self._retention.group_expires_after,
            partitions=Partitions(client.engine, client.tables, 1) if client.tables.is_partitioned else None,
            expired=self._expired,
        )
        if cleaned.messages or cleaned.ticks or cleaned.partitions:
            event = events.LogCleaned(self._log, cleaned.messages, cleaned.ticks, cleaned.partitions)
            client.events.emit(event)

"""The parts of a partitioned log: made ahead of the numbers, dropped when nobody needs them.

Behind the last of them lies the rest, which has no end: whoever publishes finds a place, also where nobody has made
parts for a long time. No DEFAULT partition, because nothing can be detached concurrently beside one. Publishers go on
meanwhile: a part is made apart and then attached, detached concurrently and then dropped, so that no lock is taken
which an INSERT would wait for. What was interrupted is ended by the next one who cleans.

What may be deleted at all, in parts or in rows, lies below the floor, and is deleted in turn with whoever seeks. A
message must stay if a living group has not read it, if it may still appear, or if it is not sequenced. That takes a
walk over the ticks that the slowest group has yet to read, so it is found once, in portions, and not for each slice
that is deleted; it stays true while no living group stands before the place from which it was found. Whoever deletes
asks for that under a lock, which seeking takes shared until its commit, before it looks for its place: each deletion
sees every seek that was committed before, and none can come in between.

Used by `Outbox.partitions`, by `Outbox.setup` and by `retention`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from faststream_outbox._internal.connections.caller import CallerConnection, caller_connection
from faststream_outbox._internal.connections.cause import is_locked
from faststream_outbox._internal.schema.log_tables import LogNames, LogTables
from faststream_outbox._internal.schema.names import quoted, schema_map_of, schema_of
from faststream_outbox._internal.sql.log_admin_rows import LowestUnread, Slowest
from faststream_outbox._internal.sql.statements import named, statements
from faststream_outbox.errors import InvalidOption

PORTION = 100_000
"""Ticks that are walked over by one statement."""

Ask = Callable[[str, dict[str, Any]], Awaitable[Sequence[Any]]]
"""Runs one of the statements about retention."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Messages from `first_kept` on stay, as long as no living group stands before this tick and position."""

    tick: int
    position: int
    first_kept: int

    @property
    def place(self) -> dict[str, Any]:
        """As parameters."""
        return {"tick": self.tick, "position": self.position}


async def find_floor(ask: Ask, group_seconds: float, *, first: int = 0) -> Floor:
    """From where on messages must stay; not searched further once nothing from `first` on may go."""
    (slowest,) = named(Slowest, await ask("slowest", {"group_seconds": group_seconds}))
    first_kept = slowest.first_kept
    after: int | None = slowest.tick
    while after is not None and first_kept > first:
        (unread,) = named(LowestUnread, await ask("lowest_unread", {"after": after, "limit": PORTION}))
        first_kept = first_kept if unread.lowest is None else min(first_kept, unread.lowest)
        after = unread.last if unread.ticks == PORTION else None
    return Floor(slowest.tick, slowest.position, first_kept)


LONGEST_WAIT = 30.0
"""Seconds to wait for a transaction that puts a group elsewhere."""
PAUSE = 0.05


async def undisturbed(attempt: Callable[[], Awaitable[Sequence[Any]]]) -> Sequence[Any]:
    """Try until no group is being put elsewhere: until the answer is not empty.

    Tried, not waited for: whoever waits for the lock alone makes all who want to share it wait behind.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + LONGEST_WAIT
    while True:
        answer = await attempt()
        if answer:
            return answer
        if loop.time() > deadline:
            msg = (
                f"For {LONGEST_WAIT} s a transaction has been open that called seek() or set_position(): before it "
                "ends, what its group will need is not known. Commit it or roll it back, and clean again."
            )
            raise TimeoutError(msg)
        await asyncio.sleep(PAUSE)


SCAN_SECONDS = 0.01
ROOM_SECONDS = 0.2
"""How long publishers may have to wait while the end of the parts is moved."""
NO_END = 2**63 - 1

_PENDING = (
    "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid "
    "where i.inhparent = to_regclass(:log) and i.inhdetachpending"
)
# A detached part that has no mark is the operator's, who keeps it for something else.
_MARKED = (
    "select c.relname from pg_class c join pg_class l on l.oid = to_regclass(:log) "
    "where c.relnamespace = l.relnamespace and obj_description(c.oid, 'pg_class') = :mark "
    "and not exists (select from pg_inherits i where i.inhrelid = c.oid)"
)


class Part(NamedTuple):
    """A part of the log; `end` is the position before which it ends."""

    name: str
    first: int
    end: int


@asynccontextmanager
async def creating(engine: AsyncEngine, tables: LogTables) -> AsyncGenerator[AsyncConnection]:
    """A transaction that may create tables of the log: one at a time, and each sees what the last one has made."""
    # Whatever the engine's isolation is: an older snapshot would not see it.
    async with engine.execution_options(isolation_level="READ COMMITTED").begin() as connection:
        names = LogNames.of(tables, schema_map_of(engine))
        opened = await caller_connection(connection, tables.log)
        await opened.fetch(statements("log", names)["lock_tables"], {"log": names.places()["log"]})
        yield connection


async def newest_size(engine: AsyncEngine, tables: LogTables) -> int | None:
    """How many positions the newest part of a log has; None where there is none but the rest."""
    async with engine.connect() as connection:
        parts = await Partitions(engine, tables, 1).parts(connection)
    last = max((part for part in parts if part.end != NO_END), key=lambda part: part.end, default=None)
    return None if last is None else last.end - last.first


async def make_rest(connection: AsyncConnection, tables: LogTables, schema: str | None, first: int = 0) -> None:
    """Give every number from one on a place."""
    log, name = quoted(tables.log.name, schema), f"{tables.log.name}_rest"
    await _attach(connection, log, quoted(name, schema), quoted(f"{name}_uq"), f"from ({first}) to (maxvalue)")


async def has_parts(connection: AsyncConnection, tables: LogTables, schema: str | None) -> bool:
    """Whether the log has any part, its rest or another."""
    found = text("select exists (select from pg_inherits where inhparent = to_regclass(:log))")
    return bool((await connection.execute(found, {"log": quoted(tables.log.name, schema)})).scalar_one())


async def _attach(connection: AsyncConnection, log: str, part: str, index: str, values: str) -> None:
    for statement in (
        f"create table {part} (like {log} including defaults including constraints)",
        f"create unique index {index} on {part} (event_id) where event_id is not null",
        f"alter table {log} attach partition {part} for values {values}",
    ):
        await connection.execute(text(statement))


class Partitions:
    """The parts of one log, each of so many positions."""

    def __init__(self, engine: AsyncEngine, tables: LogTables, size: int) -> None:
        if not tables.is_partitioned:
            msg = "The log has no partitions: describe it with make_log_tables(metadata, partitioned=True)."
            raise InvalidOption(msg)
        if size < 1:
            msg = f"A partition has at least one position, not {size}."
            raise InvalidOption(msg)
        self._engine = engine
        self._tables = tables
        self._table = tables.log
        self._size = size
        self._schema = schema_of(tables.log, schema_map_of(engine))
        names = LogNames.of(tables, schema_map_of(engine))
        places = names.places()
        self._log, self._sequence = places["log"], places["sequence"]
        self._sql = statements("retention", names)
        self._mark = f"faststream_outbox drops this, a part of {self._log}"

    def _part(self, name: str) -> str:
        return quoted(name, self._schema)

    async def drawn(self) -> int:
        """How far numbers are drawn."""
        async with self._engine.connect() as connection:
            return int((await connection.execute(text(f"select last_value from {self._sequence}"))).scalar_one())

    async def ensure(self, ahead: int = 2) -> list[str]:
        """Make the partition that the numbers are in, and so many more; the names of new ones.

        Publishers wait for a moment where the end of the parts has to be moved. Where an open transaction has published
        or read, that is left to the next call: what is beyond the last partition is kept in the rest.

        ahead: how many more.
        """
        made: list[str] = []
        async with creating(self._engine, self._tables) as connection:
            drawn = (await connection.execute(text(f"select last_value from {self._sequence}"))).scalar_one()
            parts = await self.parts(connection)
            wanted = range(drawn // self._size, drawn // self._size + ahead + 1)
            rest = next((part for part in parts if part.end == NO_END), None)
            taken = [(lo, hi) for _, lo, hi in parts if hi != NO_END]
            missing = [number for number in wanted if not self._is_within(number, taken)]
            if rest is not None:
                if not missing:
                    return made
                end = await self._make_room(connection, rest, drawn)
                if end is None:
                    return made
                taken.append((rest.first, end))
            for number in missing:
                if not self._is_within(number, taken):
                    name = f"{self._table.name}_p{number}"
                    await self._make(connection, name, number)
                    made.append(name)
            ends = [hi for _, _, hi in await self.parts(connection)]
            await make_rest(connection, self._tables, self._schema, max(ends, default=0))
        return made

    def _is_within(self, number: int, taken: Sequence[tuple[int, int]]) -> bool:
        return any(lo <= number * self._size < hi for lo, hi in taken)

    async def _make_room(self, connection: AsyncConnection, rest: Part, drawn: int) -> int | None:
        """Take the rest away, or make a part of it if it is in use: its end; None where others hold the log.

        Whoever publishes waits from now on until the transaction ends, and finds a new rest then.
        """
        name, lo, _ = rest
        try:
            async with connection.begin_nested():
                await connection.execute(text(f"set local lock_timeout = {int(ROOM_SECONDS * 1000)}"))
                await connection.execute(text(f"lock table {self._log} in access exclusive mode"))
        except DBAPIError as error:
            if not is_locked(error):
                raise
            return None
        part = self._part(name)
        await connection.execute(text(f"alter table {self._log} detach partition {part}"))
        last: int | None = (await connection.execute(text(f"select max(position) from {part}"))).scalar_one()
        if last is None:
            await connection.execute(text(f"drop table {part}"))
            return lo
        # Those who have drawn a number have written it, or are gone: they would hold the log.
        end: int = (max(last, drawn) // self._size + 1) * self._size
        kept = f"{self._table.name}_p{lo // self._size}"
        for statement in (
            f"alter table {part} rename to {quoted(kept)}",
            f"alter index {quoted(f'{name}_uq', self._schema)} rename to {quoted(f'{kept}_event_id_uq')}",
            f"alter table {self._log} attach partition {self._part(kept)} for values from ({lo}) to ({end})",
        ):
            await connection.execute(text(statement))
        return end

    async def _make(self, connection: AsyncConnection, name: str, number: int) -> None:
        lo, hi = number * self._size, (number + 1) * self._size
        index = quoted(f"{name}_event_id_uq")
        await _attach(connection, self._log, self._part(name), index, f"from ({lo}) to ({hi})")

    async def drop(
        self, older_than: timedelta, *, group_expires_after: timedelta = timedelta(days=30)
    ) -> Sequence[str]:
        """Drop partitions that every group heard of in that time has read, and that hold nothing young; their names.

        Does nothing while another process is about it.

        older_than: how long messages stay at least.
        group_expires_after: a group that was not heard of for so long holds nothing back any more.
        """
        dropped: list[str] = []
        async with self._engine.connect() as first, self._engine.connect() as second:
            # Detaching concurrently takes two transactions of its own.
            connection = await first.execution_options(isolation_level="AUTOCOMMIT")
            guard = await caller_connection(
                await second.execution_options(isolation_level="READ COMMITTED"), self._table
            )
            if not await guard.fetch(self._sql["lock_parts"], {}):
                return dropped
            async with second.begin_nested():
                # The server keeps the snapshot of the last answer until it hears something else, and detaching waits
                # for old snapshots.
                pass
            dropped += await self._finish(connection)
            values = {"group_seconds": group_expires_after.total_seconds()}
            asked = await caller_connection(connection, self._table)

            async def ask(name: str, values: dict[str, Any]) -> Sequence[Any]:
                return await asked.fetch(self._sql[name], values)

            floor = await find_floor(ask, values["group_seconds"])
            for part in await self.parts(connection):
                name, _, hi = part
                if hi > floor.first_kept or not await self._is_old(connection, name, older_than):
                    continue
                is_out = await self._detach(connection, guard, part, floor, values)
                if not is_out:
                    # A group was put back, or came back: it may need less than the place says that it stands before.
                    floor = await find_floor(ask, values["group_seconds"])
                    is_out = hi <= floor.first_kept and await self._detach(connection, guard, part, floor, values)
                if is_out:
                    await connection.execute(text(f"drop table {self._part(name)}"))
                    dropped.append(name)
        return dropped

    async def _finish(self, connection: AsyncConnection) -> Sequence[str]:
        """End what was interrupted: detach the rest of the way, and drop what was detached to be dropped."""
        values = {"log": self._log, "mark": self._mark}
        for (name,) in await connection.execute(text(_PENDING), values):
            await connection.execute(text(f"alter table {self._log} detach partition {self._part(name)} finalize"))
        marked = [name for (name,) in await connection.execute(text(_MARKED), values)]
        for name in marked:
            await connection.execute(text(f"drop table {self._part(name)}"))
        return marked

    async def _detach(
        self,
        connection: AsyncConnection,
        guard: CallerConnection,
        which: Part,
        floor: Floor,
        values: Mapping[str, Any],
    ) -> bool:
        """Take a partition out of the log, unless a group needs something of it."""
        name, lo, hi = which
        holder: AsyncConnection = guard.connection
        detaching: asyncio.Task[Any] | None = None
        try:
            # Its end gives the lock back: whoever seeks waits until the partition is out of sight, and no longer.
            async with holder.begin_nested() as moment:
                await undisturbed(lambda: guard.fetch(self._sql["lock_retention"], {}))
                asked = {**values, **floor.place, "lo": lo, "hi": hi}
                if not await guard.fetch(self._sql["part_may_go"], asked):
                    await moment.rollback()
                    return False
                part = self._part(name)
                await connection.execute(text(f"comment on table {part} is {_literal(self._mark)}"))
                statement = text(f"alter table {self._log} detach partition {part} concurrently")
                detaching = asyncio.ensure_future(connection.execute(statement))
                while not detaching.done() and not await self._is_out_of_sight(holder, name):
                    await asyncio.wait([detaching], timeout=SCAN_SECONDS)
                await moment.rollback()
            await detaching
        except BaseException:
            if detaching is not None:
                # The next one who cleans finds what is left to do.
                detaching.cancel()
                await asyncio.wait([detaching])
            raise
        return True

    async def _is_out_of_sight(self, connection: AsyncConnection, name: str) -> bool:
        pending = await connection.execute(text(_PENDING), {"log": self._log, "mark": self._mark})
        return name in pending.scalars()

    async def _is_old(self, connection: AsyncConnection, name: str, older_than: timedelta) -> bool:
        is_old = "coalesce(max(created_at) < clock_timestamp() - cast(:age as interval), true)"
        rows = await connection.execute(text(f"select {is_old} from {self._part(name)}"), {"age": older_than})
        return bool(rows.scalar_one())

    async def parts(self, connection: AsyncConnection) -> Sequence[Part]:
        """Parts that are attached."""
        rows = await connection.execute(
            text(
                "select c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i "
                "join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass(:log) "
                "and not i.inhdetachpending order by c.oid"
            ),
            {"log": self._log},
        )
        return [Part(name, *_bounds(expression)) for name, expression in rows if expression and "FROM" in expression]


def _bounds(expression: str) -> tuple[int, int]:
    """The numbers in `FOR VALUES FROM ('0') TO ('1000')`; the rest has no second one."""
    numbers = [part for part in expression.replace("(", "'").replace(")", "'").split("'") if part.isdecimal()]
    return int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else NO_END


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

"""The parts of a partitioned log: made ahead of the numbers, dropped when nobody needs them.

Publishers go on meanwhile: a part is made apart and then attached, detached concurrently and then dropped,
so that no lock is taken which an INSERT would wait for. What was interrupted is ended by the next one who
cleans. Used by `Outbox.partitions` and `Outbox.clean`.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from faststream_outbox.errors import InvalidOption
from faststream_outbox.log.retention_lock import undisturbed
from faststream_outbox.schema.log_tables import LogNames, LogTables
from faststream_outbox.schema.names import quoted, schema_map_of, schema_of
from faststream_outbox.sql import statements
from faststream_outbox.sql.through import Through, through

LOOK_SECONDS = 0.01

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


@asynccontextmanager
async def creating(engine: AsyncEngine, tables: LogTables) -> AsyncGenerator[AsyncConnection]:
    """A transaction that may create tables of the log: one at a time, and each sees what the last one has made."""
    # Whatever the engine's isolation is: an older snapshot would not see it.
    async with engine.execution_options(isolation_level="READ COMMITTED").begin() as connection:
        names = LogNames.of(tables, schema_map_of(engine))
        opened = await through(connection, tables.log)
        await opened.fetch(statements("log", names)["lock_tables"], {"log": names.places()["log"]})
        yield connection


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
        self._sql = statements("position", names)
        self._mark = f"faststream_outbox drops this, a part of {self._log}"

    def _part(self, name: str) -> str:
        return quoted(name, self._schema)

    async def ensure(self, ahead: int = 2) -> list[str]:
        """Make the partition that the numbers are in, and so many more; the names of new ones.

        ahead: how many more.
        """
        made = []
        async with creating(self._engine, self._tables) as connection:
            drawn = (await connection.execute(text(f"select last_value from {self._sequence}"))).scalar_one()
            there = {name for name, _, _ in await self._parts(connection)}
            for number in range(drawn // self._size, drawn // self._size + ahead + 1):
                name = f"{self._table.name}_p{number}"
                if name not in there:
                    await self._make(connection, name, number)
                    made.append(name)
        return made

    async def _make(self, connection: AsyncConnection, name: str, number: int) -> None:
        part, index = self._part(name), quoted(f"{name}_event_id_uq")
        lo, hi = number * self._size, (number + 1) * self._size
        for statement in (
            f"create table {part} (like {self._log} including defaults including constraints)",
            f"create unique index {index} on {part} (event_id) where event_id is not null",
            f"alter table {self._log} attach partition {part} for values from ({lo}) to ({hi})",
        ):
            await connection.execute(text(statement))

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
            guard = await through(await second.execution_options(isolation_level="READ COMMITTED"), self._table)
            if not await guard.fetch(self._sql["lock_parts"], {}):
                return dropped
            async with second.begin_nested():
                # The server keeps the snapshot of the last answer until it hears something else, and detaching waits
                # for old snapshots.
                pass
            dropped += await self._finish(connection)
            values = {"group_seconds": group_expires_after.total_seconds()}
            for name, _, hi in await self._parts(connection):
                if await self._is_old(connection, name, older_than) and await self._detach(
                    connection, guard, name, hi, values
                ):
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
        self, connection: AsyncConnection, guard: Through, name: str, hi: int, values: Mapping[str, Any]
    ) -> bool:
        """Take a partition out of the log, unless a group needs something of it."""
        holder: AsyncConnection = guard.connection
        detaching: asyncio.Task[Any] | None = None
        try:
            # Its end gives the lock back: whoever seeks waits until the partition is out of sight, and no longer.
            async with holder.begin_nested() as moment:
                await undisturbed(lambda: guard.fetch(self._sql["lock_retention"], {}))
                floor = (await guard.fetch(self._sql["retained"], values))[0][0] or 0
                if hi > floor:
                    await moment.rollback()
                    return False
                part = self._part(name)
                await connection.execute(text(f"comment on table {part} is {_literal(self._mark)}"))
                statement = text(f"alter table {self._log} detach partition {part} concurrently")
                detaching = asyncio.ensure_future(connection.execute(statement))
                while not detaching.done() and not await self._is_out_of_sight(holder, name):
                    await asyncio.wait([detaching], timeout=LOOK_SECONDS)
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
        return name in {row[0] for row in pending}

    async def _is_old(self, connection: AsyncConnection, name: str, older_than: timedelta) -> bool:
        is_old = "coalesce(max(created_at) < clock_timestamp() - cast(:age as interval), true)"
        rows = await connection.execute(text(f"select {is_old} from {self._part(name)}"), {"age": older_than})
        return bool(rows.scalar_one())

    async def _parts(self, connection: AsyncConnection) -> Sequence[tuple[str, int, int]]:
        rows = await connection.execute(
            text(
                "select c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i "
                "join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass(:log) "
                "and not i.inhdetachpending order by c.oid"
            ),
            {"log": self._log},
        )
        return [(name, *_bounds(expression)) for name, expression in rows if expression and "FROM" in expression]


def _bounds(expression: str) -> tuple[int, int]:
    """The numbers in `FOR VALUES FROM ('0') TO ('1000')`."""
    numbers = [part for part in expression.replace("(", "'").replace(")", "'").split("'") if part.isdecimal()]
    return int(numbers[0]), int(numbers[1])


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

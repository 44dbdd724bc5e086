"""The parts of a partitioned log: made ahead of the numbers, dropped when nobody needs them.

Publishers go on meanwhile: a part is made apart and then attached, detached concurrently and then dropped,
so that no lock is taken which an INSERT would wait for. Used by `Outbox.partitions` and `Outbox.clean`.
"""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from faststream_outbox.errors import InvalidOption
from faststream_outbox.schema.log_tables import LogNames, LogTables
from faststream_outbox.schema.names import quoted


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
        self._table = tables.log
        self._size = size
        places = LogNames.of(tables).places()
        self._log, self._sequence = places["log"], places["sequence"]

    def _part(self, name: str) -> str:
        return quoted(name, self._table.schema)

    async def ensure(self, ahead: int = 2) -> list[str]:
        """Make the partition that the numbers are in, and so many more; the names of new ones."""
        made = []
        async with self._engine.begin() as connection:
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

    async def drop(self, floor: int, older_than: timedelta) -> list[str]:
        """Drop partitions that lie below the floor and hold nothing young; the names of those dropped."""
        async with self._engine.connect() as plain:
            # Detaching concurrently takes two transactions of its own.
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            old = [
                name
                for name, _, hi in await self._parts(connection)
                if hi <= floor and await self._is_old(connection, name, older_than)
            ]
            for name in old:
                part = self._part(name)
                await connection.execute(text(f"alter table {self._log} detach partition {part} concurrently"))
                await connection.execute(text(f"drop table {part}"))
        return old

    async def _is_old(self, connection: AsyncConnection, name: str, older_than: timedelta) -> bool:
        is_old = "coalesce(max(created_at) < clock_timestamp() - cast(:age as interval), true)"
        rows = await connection.execute(text(f"select {is_old} from {self._part(name)}"), {"age": older_than})
        return bool(rows.scalar_one())

    async def _parts(self, connection: AsyncConnection) -> Sequence[tuple[str, int, int]]:
        rows = await connection.execute(
            text(
                "select c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i "
                "join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass(:log) order by c.oid"
            ),
            {"log": self._log},
        )
        return [(name, *_bounds(expression)) for name, expression in rows if expression and "FROM" in expression]


def _bounds(expression: str) -> tuple[int, int]:
    """The numbers in `FOR VALUES FROM ('0') TO ('1000')`."""
    numbers = [part for part in expression.replace("(", "'").replace(")", "'").split("'") if part.isdecimal()]
    return int(numbers[0]), int(numbers[1])

"""Whether a database has the tables as this version needs them, and if not, the SQL that mends it.

`validate_schema` raises once with every difference; `find_differences` returns them. Both only read.
Called by the broker's `validate_schema` and by applications in a health check or a deploy step, after
their migrations and not at start.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sqlalchemy import MetaData, Table
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from faststream_outbox.errors import InvalidOption, SchemaMismatch
from faststream_outbox.schema.catalog import read
from faststream_outbox.schema.compare import Difference, compare
from faststream_outbox.schema.line import one_line
from faststream_outbox.schema.log_tables import LogTables
from faststream_outbox.schema.shape import described
from faststream_outbox.schema.tables import make_dlq_table, make_outbox_table

# What a claim writes: an index on one of these would move on every claim.
LEASE_COLUMNS = frozenset({"acquired_at", "acquired_token", "deliveries_count", "last_attempt_at"})


async def validate_schema(
    connection_or_engine: AsyncConnection | AsyncEngine,
    table: Table,
    dlq_table: Table | None = None,
    *,
    check_autovacuum: bool = False,
) -> None:
    """Raise `SchemaMismatch` if the tables are not as needed; paste its text into psql from line 2 on."""
    _refuse(await find_differences(connection_or_engine, table, dlq_table, check_autovacuum=check_autovacuum))


async def validate_log_schema(connection_or_engine: AsyncConnection | AsyncEngine, tables: LogTables) -> None:
    """Raise `SchemaMismatch` if the log's tables are not as needed; paste its text into psql from line 2 on."""
    differences: list[Difference] = []
    async with _connected(connection_or_engine) as connection:
        for table in tables.all:
            if not (table is tables.log and tables.is_partitioned):
                differences += await _differences(connection, table, frozenset(), check_autovacuum=False)
    _refuse(differences)


def _refuse(differences: list[Difference]) -> None:
    if differences:
        count = "1 difference" if len(differences) == 1 else f"{len(differences)} differences"
        lines = [f"The database is not as this version needs it ({count}). Run this, outside a transaction:"]
        # A name may hold a line break, and what stands behind it would be run by whoever pastes this.
        lines.extend(f"-- {one_line(f'{item.where}: {item.problem}')}\n{item.fix}" for item in differences)
        raise SchemaMismatch("\n".join(lines))


async def find_differences(
    connection_or_engine: AsyncConnection | AsyncEngine,
    table: Table,
    dlq_table: Table | None = None,
    *,
    check_autovacuum: bool = False,
) -> list[Difference]:
    """Everything that is wrong with the tables in the database, in an order in which it can be mended.

    The tables give their names, schema and naming convention; what is needed is what this version's
    own factories describe, so that a reflected or hand-written table is checked in full too.
    """
    async with _connected(connection_or_engine) as connection:
        differences = await _differences(
            connection, make_outbox_table(_metadata(table), table.name), LEASE_COLUMNS, check_autovacuum
        )
        if dlq_table is not None:
            dead = make_dlq_table(_metadata(dlq_table), dlq_table.name)
            differences += await _differences(connection, dead, frozenset(), check_autovacuum=False)
    return differences


async def _differences(
    connection: AsyncConnection, table: Table, lease_columns: frozenset[str], check_autovacuum: bool
) -> list[Difference]:
    translated = await connection.run_sync(lambda sync: sync.get_execution_options().get("schema_translate_map") or {})
    schema = translated.get(table.schema, table.schema)
    expected = described(table, schema=schema, lease_columns=lease_columns)
    found = await read(connection, expected.table, expected.schema)
    return compare(expected, found, check_autovacuum=check_autovacuum)


def _metadata(table: Table) -> MetaData:
    return MetaData(schema=table.schema, naming_convention=table.metadata.naming_convention)


@asynccontextmanager
async def _connected(source: object) -> AsyncGenerator[AsyncConnection]:
    """A connection in a transaction; one that this function began is ended by it."""
    if isinstance(source, AsyncEngine):
        async with source.connect() as connection, connection.begin():
            yield connection
    elif not isinstance(source, AsyncConnection):
        msg = f"Check the schema with an AsyncEngine or an AsyncConnection, not with {type(source).__name__}."
        raise InvalidOption(msg)
    elif source.in_transaction():
        yield source
    else:
        async with source.begin():
            yield source

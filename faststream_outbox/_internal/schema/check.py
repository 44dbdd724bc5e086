"""Whether a database has the tables as this version needs them, and if not, the SQL that repairs it.

`validate_schema` raises once with every difference; `find_differences` returns them. Both only read.
Called by the broker's `validate_schema` and by applications in a health check or a deploy step, after
their migrations and not at start.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sqlalchemy import MetaData, Table
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from faststream_outbox._internal.schema.catalog import read
from faststream_outbox._internal.schema.compare import Difference, compare
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox._internal.schema.shape import described
from faststream_outbox._internal.schema.tables import make_dlq_table, make_inbox_table, make_outbox_table
from faststream_outbox._internal.text import one_line
from faststream_outbox.errors import InvalidOption, SchemaMismatch

# What a claim writes: an index on one of these would move on every claim.
LEASE_COLUMNS = frozenset({"acquired_at", "acquired_token", "deliveries_count"})

# What whoever handles messages does to each table.
_CLAIMS = ("SELECT", "UPDATE", "DELETE")
_BURIES = ("INSERT",)
_ALL = ("SELECT", "INSERT", "UPDATE", "DELETE")
_RECEIVES = ("SELECT", "INSERT")


async def validate_schema(
    connection_or_engine: AsyncConnection | AsyncEngine,
    table: Table,
    dlq_table: Table | None = None,
    *,
    check_autovacuum: bool = False,
    check_rights: bool = False,
) -> None:
    """Raise `SchemaMismatch` if the tables are not as needed; paste its text into psql from line 2 on.

    check_autovacuum: look at the vacuum settings too.
    check_rights: look at what the connection's role may do, as one that handles messages.
    """
    _refuse(
        await find_differences(
            connection_or_engine, table, dlq_table, check_autovacuum=check_autovacuum, check_rights=check_rights
        )
    )


async def validate_log_schema(
    connection_or_engine: AsyncConnection | AsyncEngine, tables: LogTables, *, check_rights: bool = False
) -> None:
    """Raise `SchemaMismatch` if the log's tables are not as needed; paste its text into psql from line 2 on.

    check_rights: look at what the connection's role may do, as one that reads topics.
    """
    _refuse(await find_log_differences(connection_or_engine, tables, check_rights=check_rights))


async def find_log_differences(
    connection_or_engine: AsyncConnection | AsyncEngine, tables: LogTables, *, check_rights: bool = False
) -> list[Difference]:
    """Everything that is wrong with the log's tables in the database, in an order in which it can be repaired."""
    head = tuple(right for right in _ALL if right != "UPDATE")
    rights = {tables.log: _ALL[:1], tables.head: head, tables.ticks: _ALL[:2]} if check_rights else {}
    differences: list[Difference] = []
    async with _connected(connection_or_engine) as connection:
        for table in tables.all:
            needed = rights.get(table, _ALL) if check_rights else ()
            differences += await _differences(connection, table, needed, is_filled=False)
    return differences


async def validate_inbox_schema(
    connection_or_engine: AsyncConnection | AsyncEngine, table: Table, *, check_rights: bool = False
) -> None:
    """Raise `SchemaMismatch` if the table of receipts is not as needed; paste its text into psql from line 2 on.

    check_rights: look at what the connection's role may do, as one that receives.
    """
    _refuse(await find_inbox_differences(connection_or_engine, table, check_rights=check_rights))


async def find_inbox_differences(
    connection_or_engine: AsyncConnection | AsyncEngine, table: Table, *, check_rights: bool = False
) -> list[Difference]:
    """Everything that is wrong with the table of receipts in the database, in an order in which it can be repaired."""
    needed = make_inbox_table(_metadata(table), table.name)
    async with _connected(connection_or_engine) as connection:
        return await _differences(connection, needed, _RECEIVES if check_rights else ())


def printed(differences: list[Difference]) -> str:
    """What is wrong, and below it the SQL that repairs it, to be pasted into psql: words are comments."""
    words = [item for item in differences if not item.fix]
    together = [item for item in differences if item.fix and item.runs_in_transaction]
    outside = [item for item in differences if item.fix and not item.runs_in_transaction]
    lines = [_comment(item) for item in words]
    if together:
        lines += ["BEGIN;", *(f"{_comment(item)}\n{item.fix}" for item in together), "COMMIT;"]
    if outside:
        lines += ["-- These cannot run inside a transaction, because others go on writing meanwhile:"]
        lines += [f"{_comment(item)}\n{item.fix}" for item in outside]
    return "\n".join(lines)


def _comment(item: Difference) -> str:
    # A name may hold a line break, and what stands behind it would be run by whoever pastes this.
    return f"-- {one_line(f'{item.where}: {item.problem}')}"


def _refuse(differences: list[Difference]) -> None:
    if differences:
        count = "1 difference" if len(differences) == 1 else f"{len(differences)} differences"
        is_repaired = any(item.fix for item in differences)
        what = "Run this; what is left to you is said in words:" if is_repaired else "This is left to you:"
        msg = f"The database is not as this version needs it ({count}). {what}\n{printed(differences)}"
        raise SchemaMismatch(msg)


async def find_differences(
    connection_or_engine: AsyncConnection | AsyncEngine,
    table: Table,
    dlq_table: Table | None = None,
    *,
    check_autovacuum: bool = False,
    check_rights: bool = False,
) -> list[Difference]:
    """Everything that is wrong with the tables in the database, in an order in which it can be repaired.

    The tables give their names, schema and naming convention; what is needed is what this version's
    own factories describe, so that a reflected or hand-written table is checked in full too.
    """
    async with _connected(connection_or_engine) as connection:
        differences = await _differences(
            connection,
            make_outbox_table(_metadata(table), table.name),
            _CLAIMS if check_rights else (),
            lease_columns=LEASE_COLUMNS,
            check_autovacuum=check_autovacuum,
        )
        if dlq_table is not None:
            dead = make_dlq_table(_metadata(dlq_table), dlq_table.name)
            differences += await _differences(connection, dead, _BURIES if check_rights else ())
    return differences


async def _differences(
    connection: AsyncConnection,
    table: Table,
    rights: tuple[str, ...],
    *,
    lease_columns: frozenset[str] = frozenset(),
    is_filled: bool = True,
    check_autovacuum: bool = False,
) -> list[Difference]:
    translated = await connection.run_sync(lambda sync: sync.get_execution_options().get("schema_translate_map") or {})
    schema = translated.get(table.schema, table.schema)
    expected = described(table, schema=schema, lease_columns=lease_columns, is_filled=is_filled)
    found = await read(connection, expected.table, expected.schema, rights)
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

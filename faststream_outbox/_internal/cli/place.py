"""Where a command works: an engine and the tables that are there, from `--dsn` or `--app` and the names of tables.

A table that was named must exist, and the nearest name is said where it does not. One that was not named is used if
there is one under its usual name with the right columns. Used by `here`.
"""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, MetaData, Table, inspect
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from faststream_outbox._internal.cli.address import make_engine
from faststream_outbox._internal.cli.exits import Refusal
from faststream_outbox._internal.cli.given_app import Given, given_by
from faststream_outbox._internal.options import nearest
from faststream_outbox._internal.schema.catalog import read
from faststream_outbox._internal.schema.inbox_table import make_inbox_table
from faststream_outbox._internal.schema.log_tables import LogTables, make_log_tables
from faststream_outbox._internal.schema.shape import Found
from faststream_outbox._internal.schema.tables import make_dlq_table, make_outbox_table
from faststream_outbox.errors import UnknownName

VARIABLE = "OUTBOX_DSN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What was said on the command line; None where nothing was."""

    dsn: str | None = None
    app: str | None = None
    table: str | None = None
    dlq_table: str | None = None
    log: str | None = None
    offsets: str | None = None
    inbox: str | None = None
    schema: str | None = None
    timeout: timedelta | None = None
    """How long one question may take."""


class Names(NamedTuple):
    """The tables' names; None where there is none."""

    table: str | None
    dlq_table: str | None
    log: str | None
    inbox: str | None


USUAL = Names("outbox", "outbox_dlq", "outbox_log", "inbox")


@dataclass(frozen=True, slots=True)
class Place:
    """An engine, and the tables of its database that commands work on."""

    engine: AsyncEngine
    table: Table | None = None
    dlq_table: Table | None = None
    log_tables: LogTables | None = None
    inbox_table: Table | None = None
    broker: Any = None


def given(where: Where) -> Given:
    """The engine, and what an application says of its tables."""
    if where.app is not None:
        if where.dsn is not None:
            msg = "--dsn and --app both say where the database is: give one of them."
            raise Refusal(msg)
        return given_by(where.app)
    dsn = where.dsn or os.environ.get(VARIABLE)
    if not dsn:
        msg = (
            f"Which database? Give --dsn postgresql://…, set {VARIABLE}, or name your application with "
            "--app module:broker."
        )
        raise Refusal(msg)
    return Given(make_engine(dsn))


async def find(source: Given, where: Where, connection: AsyncConnection) -> Place:
    """The tables that were named, those that the application has, and those that are there under their usual names."""
    names = await connection.run_sync(lambda sync: _names(sync, source, where))
    tables = described(names, where, partitioned=await is_partitioned(connection, names.log, where.schema))
    return Place(
        source.engine,
        tables.table if tables.table is not None else source.table,
        tables.dlq_table if tables.dlq_table is not None else source.dlq_table,
        tables.log_tables or source.log_tables,
        tables.inbox_table if tables.inbox_table is not None else source.inbox_table,
        source.broker,
    )


@dataclass(frozen=True, slots=True)
class Described:
    """Tables as this version makes them, under the names that were asked for."""

    table: Table | None
    dlq_table: Table | None
    log_tables: LogTables | None
    inbox_table: Table | None


def described(names: Names, where: Where, *, partitioned: bool = False) -> Described:
    """Describe tables of these names."""
    metadata = MetaData(schema=where.schema)
    try:
        return Described(
            table=None if names.table is None else make_outbox_table(metadata, names.table),
            dlq_table=None if names.dlq_table is None else make_dlq_table(metadata, names.dlq_table),
            log_tables=None
            if names.log is None
            else make_log_tables(metadata, names.log, where.offsets, partitioned=partitioned),
            inbox_table=None if names.inbox is None else make_inbox_table(metadata, names.inbox),
        )
    except InvalidRequestError as error:
        msg = "Two of --table, --dlq-table, --log, --offsets and --inbox name one table, or one that a log has besides."
        raise Refusal(msg) from error


async def is_partitioned(connection: AsyncConnection, log: str | None, schema: str | None) -> bool:
    """Whether a log of this name is there and consists of partitions."""
    if log is None:
        return False
    found = await read(connection, log, schema)
    return isinstance(found, Found) and found.kind == "p"


def _names(connection: Connection, source: Given, where: Where) -> Names:
    """Names of the tables to describe: those that were given, or the usual ones of which the application has none."""
    inspector = inspect(connection)
    there = set(inspector.get_table_names(schema=where.schema))

    def name(option: str, said: str | None, usual: tuple[str, ...], columns: set[str], *, is_given: bool) -> str | None:
        if said is not None:
            if said not in there:
                msg = f"{option}: there is no table {said!r}; {nearest(said, there, 'table')}"
                raise UnknownName(msg)
            return said
        if is_given or source.broker is not None:
            return None
        for each in usual:
            if each in there:
                known = {column["name"] for column in inspector.get_columns(each, schema=where.schema)}
                if columns <= known:
                    return each
        return None

    return Names(
        name("--table", where.table, ("outbox",), {"queue", "payload"}, is_given=source.table is not None),
        name("--dlq-table", where.dlq_table, ("outbox_dlq",), {"original_id"}, is_given=source.dlq_table is not None),
        # An Outbox without FastStream calls its log `outbox`, unless it is given another name.
        name("--log", where.log, ("outbox_log", "outbox"), {"position", "uri"}, is_given=source.log_tables is not None),
        name(
            "--inbox",
            where.inbox,
            ("inbox",),
            {"consumer", "message_id", "received_at"},
            is_given=source.inbox_table is not None,
        ),
    )

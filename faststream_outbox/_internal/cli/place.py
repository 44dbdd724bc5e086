"""Where a command works: an engine and tables, from `--dsn` or `--app` and the names of tables.

An address is what an operator has at hand: the application's, with any driver's name in it or none, or a hosting
service's with libpq's options; asyncpg or psycopg is used, whichever is installed. The connections are named, and give
up a server that does not answer. An application is only imported, never started: its engine and its tables are used,
and its relays are listed.

A table that was named must exist, and the nearest name is said where it does not. One that was not named is used if
there is one under its usual name with the right columns. What cannot be found is a refusal that says what to write.
Used by `command`, which connects, and by the commands of the schema.
"""

import os
import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from sqlalchemy import URL, Connection, MetaData, inspect
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from faststream_outbox._internal.cli.exits import Refusal
from faststream_outbox._internal.connections.address import Address
from faststream_outbox._internal.options import is_encodable, nearest
from faststream_outbox._internal.schema.catalog import read
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox._internal.schema.log_tables import make_log_tables
from faststream_outbox._internal.schema.shape import Found
from faststream_outbox._internal.schema.tables import make_dlq_table, make_inbox_table, make_outbox_table
from faststream_outbox.errors import UnknownName

NAME = "faststream-outbox cli"
CONNECT_SECONDS = "10"
_DRIVERS = ("asyncpg", "psycopg")
# So that it works behind a pooler too. A command sends each statement once.
_WITHOUT_PREPARED: dict[str, dict[str, Any]] = {
    "asyncpg": {"statement_cache_size": 0, "prepared_statement_cache_size": 0, "prepared_statement_name_func": str},
    "psycopg": {"prepare_threshold": None},
}
_EXAMPLE = "postgresql://user:password@host:5432/database"


def make_engine(dsn: str) -> AsyncEngine:
    """An engine that connects when it is first used."""
    driver = _driver(dsn)
    address = _address(dsn)
    settings = {"application_name": NAME, "connect_timeout": CONNECT_SECONDS, **address.settings}
    arguments = {**Address(address.hosts, settings).arguments(driver, {}), **_WITHOUT_PREPARED[driver]}
    return create_async_engine(URL.create(f"postgresql+{driver}"), connect_args=arguments, pool_size=2)


def _address(dsn: str) -> Address:
    scheme, _, rest = dsn.partition("://")
    try:
        if scheme.partition("+")[0] in ("postgresql", "postgres") and _is_text(unquote(dsn)):
            # Without the driver's name, which may be none that an address can have, such as psycopg_async.
            return Address.of(f"postgresql://{rest}")
    except ValueError:
        pass
    # The text is not repeated: there may be a password in it.
    msg = f"--dsn is no address of PostgreSQL. It looks like this: {_EXAMPLE}"
    raise Refusal(msg)


def _is_text(given: str) -> bool:
    """Whether drivers can send it: they and the functions below them fail at NUL and at lone surrogates."""
    return "\x00" not in given and is_encodable(given)


def _driver(dsn: str) -> str:
    """The one that the address names, if it will do; else one that is installed."""
    named = dsn.partition("://")[0].partition("+")[2].removesuffix("_async")
    for driver in sorted(_DRIVERS, key=lambda each: each != named):
        if find_spec(driver) is not None:
            return driver
    msg = "No driver for PostgreSQL is installed: pip install asyncpg, or pip install 'psycopg[binary]'."
    raise Refusal(msg)


_KINDS = "an OutboxBroker, a FastStream app with one, an OutboxClient, an Outbox or an Inbox"


@dataclass(frozen=True, slots=True)
class Place:
    """An engine, and the tables of its database: those that an application has described, or that were found."""

    engine: AsyncEngine
    tables: Tables = field(default_factory=Tables)
    broker: Any = None
    """The OutboxBroker, which has relays and subscribers."""


def given_by(reference: str) -> Place:
    """What a reference like `shop.app:broker` has."""
    found = _loaded(reference)
    given = _given(found)
    if given is None:
        msg = f"{reference} is a {type(found).__name__}, and --app takes {_KINDS}."
        raise Refusal(msg)
    return given


def _loaded(reference: str) -> object:
    module_name, _, path = reference.partition(":")
    if not module_name or not path:
        msg = f"--app is written module:name, as in shop.app:broker, not {reference!r}."
        raise Refusal(msg)
    here = str(Path.cwd())
    if here not in sys.path:
        # As `faststream run` does: a script's own path is that of the environment's programs.
        sys.path.insert(0, here)
    try:
        # What a module prints while it is imported is no part of our answer.
        with redirect_stdout(sys.stderr):
            found: object = import_module(module_name)
    except Exception as error:
        # Whatever a stranger's module raises while it is imported.
        msg = f"--app: importing {module_name!r} failed: {type(error).__name__}: {error}{_place(error)}"
        raise Refusal(msg) from error
    for name in path.split("."):
        if not hasattr(found, name):
            known = [
                each
                for each, value in getattr(found, "__dict__", {}).items()
                if _broker_of(value) or _engine_user(value)
            ]
            msg = f"--app: {module_name!r} has no {name!r}; {nearest(name, known, 'broker, app or outbox')}"
            raise Refusal(msg)
        found = getattr(found, name)
    return found


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""


def _given(found: object) -> Place | None:
    broker = _broker_of(found)
    if broker is None:
        return _engine_user(found)
    config = broker.config.broker_config
    if config.engine is None:
        msg = "--app: this broker was made without an engine, as for tests, so there is no database to look at."
        raise Refusal(msg)
    return Place(config.engine, Tables(config.outbox_table, config.dlq_table, config.log_tables), broker)


def _engine_user(found: object) -> Place | None:
    """What works on a database without a broker."""
    # Imported here, because most commands name no application, and need only some of it.
    from faststream_outbox._internal.inbox.receiver import Receiver
    from faststream_outbox._internal.log.outbox import Outbox
    from faststream_outbox._internal.queue.client import OutboxClient

    if isinstance(found, Outbox):
        return Place(found.engine, Tables(log_tables=found.tables))
    if isinstance(found, OutboxClient):
        return Place(found.engine, Tables(found.table, found.dlq_table))
    return Place(found.engine, Tables(inbox_table=found.table)) if isinstance(found, Receiver) else None


def _broker_of(found: object) -> Any:
    """The broker that an object is or has."""
    # Imported here, because FastStream takes longer to import than most commands take to run.
    from faststream_outbox._internal.broker.broker import OutboxBroker

    if isinstance(found, type):
        return None
    several: object = getattr(found, "brokers", None)
    candidates = [found, getattr(found, "broker", None), *(several if isinstance(several, list | tuple) else ())]
    return next((each for each in candidates if isinstance(each, OutboxBroker)), None)


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


def given(where: Where) -> Place:
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
    return Place(make_engine(dsn))


async def find(source: Place, where: Where, connection: AsyncConnection) -> Place:
    """The tables that were named, those that the application has, and those that are there under their usual names."""
    names = await connection.run_sync(lambda sync: _names(sync, source, where))
    tables = described(names, where, partitioned=await is_partitioned(connection, names.log, where.schema))
    return replace(source, tables=tables.or_else(source.tables))


def described(names: Names, where: Where, *, partitioned: bool = False) -> Tables:
    """Describe tables of these names."""
    metadata = MetaData(schema=where.schema)
    try:
        return Tables(
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


def _names(connection: Connection, source: Place, where: Where) -> Names:
    """Names of the tables to describe: those that were given, or the usual ones of which the application has none."""
    inspector, has = inspect(connection), source.tables
    there = set(inspector.get_table_names(schema=where.schema))

    def name(option: str, said: str | None, usual: tuple[str, ...], columns: set[str], given: object) -> str | None:
        if said is not None:
            if said not in there:
                msg = f"{option}: there is no table {said!r}; {nearest(said, there, 'table')}"
                raise UnknownName(msg)
            return said
        if given is not None or source.broker is not None:
            return None
        for each in usual:
            if each in there:
                known = {column["name"] for column in inspector.get_columns(each, schema=where.schema)}
                if columns <= known:
                    return each
        return None

    return Names(
        name("--table", where.table, ("outbox",), {"queue", "payload"}, has.table),
        name("--dlq-table", where.dlq_table, ("outbox_dlq",), {"original_id"}, has.dlq_table),
        # An Outbox without FastStream calls its log `outbox`, unless it is given another name.
        name("--log", where.log, ("outbox_log", "outbox"), {"position", "uri"}, has.log_tables),
        name("--inbox", where.inbox, ("inbox",), {"consumer", "message_id", "received_at"}, has.inbox_table),
    )

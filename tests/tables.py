"""Tables that exist for the length of one test."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, Table, text
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable, sort_tables

DIALECT = PGDialect_psycopg()
PATIENCE = "20s"
"""How long the tables' locks are waited for: whoever holds one that long will not let go."""

STAYS = "stays in a transaction"
"""The application_name of a session that does so from one test of a file to the next."""


@contextmanager
def existing(table: Table, engine: Engine, *, patience: str = PATIENCE) -> Iterator[Table]:
    """Creates the table and drops it again; fails the test that left a lock on it."""
    with all_existing([table], engine, patience=patience):
        yield table


@contextmanager
def all_existing(tables: Sequence[Table], engine: Engine, *, patience: str = PATIENCE) -> Iterator[None]:
    """The same for tables that belong together."""
    with at_once(engine) as connection:
        connection.exec_driver_sql(creation_of(tables))
    yield
    try:
        with at_once(engine) as connection:
            connection.exec_driver_sql(removal_of(tables, patience))
    except OperationalError as error:
        # the guilty test fails, and the next one still finds a clean database
        with engine.begin() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
            connection.exec_driver_sql(removal_of(tables, patience))
        names = ", ".join(table.name for table in tables)
        pytest.fail(f"the test left a transaction open that holds a lock on {names}: {error.orig}")


def at_once(engine: Engine) -> Connection:
    """A connection on which a script is a transaction by itself: one question to the server instead of three."""
    return engine.execution_options(isolation_level="AUTOCOMMIT").connect()


def creation_of(tables: Sequence[Table]) -> str:
    """All that makes them, in one script: asked one by one, the server and SQLAlchemy would take twice as long."""
    made = sort_tables(tables)
    parts = [
        *map(CreateTable, made),
        *(CreateIndex(index) for table in made for index in sorted(table.indexes, key=str)),
    ]
    return ";".join(str(part.compile(dialect=DIALECT)) for part in parts)


def removal_of(tables: Sequence[Table], patience: str = PATIENCE) -> str:
    """What drops those of them that are still there."""
    quoted = DIALECT.identifier_preparer.format_table
    return f"SET LOCAL lock_timeout = '{patience}'; DROP TABLE IF EXISTS {', '.join(map(quoted, tables))}"

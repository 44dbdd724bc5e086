"""Tables that exist for the length of one test."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, Table, text
from sqlalchemy.exc import OperationalError

PATIENCE = "20s"
"""How long the tables' locks are waited for: whoever holds one that long will not let go."""


@contextmanager
def existing(table: Table, engine: Engine, *, patience: str = PATIENCE) -> Iterator[Table]:
    """Creates the table and drops it again; fails the test that left a lock on it."""
    with all_existing([table], engine, patience=patience):
        yield table


@contextmanager
def all_existing(tables: Sequence[Table], engine: Engine, *, patience: str = PATIENCE) -> Iterator[None]:
    """The same for tables that belong together."""
    with engine.begin() as connection:
        tables[0].metadata.create_all(connection, tables=tables)
    yield
    try:
        with engine.begin() as connection:
            _drop(tables, connection, patience)
    except OperationalError as error:
        # the guilty test fails, and the next one still finds a clean database
        with engine.begin() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
            _drop(tables, connection, patience)
        names = ", ".join(table.name for table in tables)
        pytest.fail(f"the test left a transaction open that holds a lock on {names}: {error.orig}")


def _drop(tables: Sequence[Table], connection: Connection, patience: str) -> None:
    connection.execute(text(f"SET LOCAL lock_timeout = '{patience}'"))
    tables[0].metadata.drop_all(connection, tables=tables)

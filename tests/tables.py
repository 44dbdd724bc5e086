"""Tables that exist for the length of one test."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, Table, text
from sqlalchemy.exc import OperationalError


@contextmanager
def existing(table: Table, engine: Engine) -> Iterator[Table]:
    """Creates the table and drops it again; fails the test that left a lock on it."""
    with engine.begin() as connection:
        table.metadata.create_all(connection, tables=[table])
    yield table
    try:
        with engine.begin() as connection:
            _drop(table, connection)
    except OperationalError as error:
        # the guilty test fails, and the next one still finds a clean database
        with engine.begin() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
            _drop(table, connection)
        pytest.fail(f"the test left a transaction open that holds a lock on {table.name}: {error.orig}")


def _drop(table: Table, connection: Connection) -> None:
    connection.execute(text("SET LOCAL lock_timeout = '2s'"))
    table.metadata.drop_all(connection, tables=[table])

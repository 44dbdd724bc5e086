"""Two clusters, and a log that is carried from one to the other with `pg_dump`.

The second cluster counts its transactions from somewhere else, lower or higher, as a fresh or a busy one
would. Used by the tests of dump and restore.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from faststream_outbox.testing.postgres import PostgresServer

SETTINGS = {"fsync": "off", "max_connections": "50"}
DATABASE = "shop"


def start() -> PostgresServer:
    """A cluster with an empty database `shop`."""
    server = PostgresServer.start(version=int(os.environ.get("OUTBOX_TEST_PG", "18")), settings=SETTINGS)
    server.create_database(DATABASE)
    return server


def emptied(server: PostgresServer) -> PostgresServer:
    """The cluster with an empty database `shop` again."""
    server.run("dropdb", "--force", DATABASE)
    server.create_database(DATABASE)
    return server


@contextmanager
def connected(server: PostgresServer) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """A connection to `shop`, in no transaction."""
    with psycopg.connect(server.dsn(DATABASE, driver=""), autocommit=True) as connection:
        yield connection


def next_xid(server: PostgresServer) -> int:
    """The transaction id that the cluster gives out now."""
    with connected(server) as connection:
        row = connection.execute("select pg_current_xact_id()::text::bigint").fetchone()
        assert row is not None
        return int(str(row[0]))


def use_up(server: PostgresServer, until: int) -> None:
    """Give out transaction ids until one is reached."""
    count = max(0, until - next_xid(server))
    with connected(server) as connection:
        connection.execute(
            f"do $$ begin for i in 1..{count} loop perform pg_current_xact_id(); commit; end loop; end $$".encode()
        )


def carry(source: PostgresServer, target: PostgresServer, file: Path) -> None:
    """Dump `shop` as it is now, and restore it on the other cluster."""
    dump(source, file)
    restore(target, file)


def dump(source: PostgresServer, file: Path) -> None:
    """Dump `shop` with `pg_dump`."""
    source.run("pg_dump", "--no-owner", "-f", file, DATABASE)


def restore(target: PostgresServer, file: Path, database: str = DATABASE) -> None:
    """Restore with `psql`, which stops at the first error, into an empty database."""
    target.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database, "-f", file)

"""The stage of a benchmark: a private PostgreSQL, fresh tables, and counters read from the server."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sqlalchemy import MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from faststream_outbox.schema import make_dlq_table, make_outbox_table
from faststream_outbox.testing.postgres import PostgresServer

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
    "autovacuum_naptime": "5s",
    "max_connections": "300",
}


@dataclass(frozen=True, slots=True)
class Counts:
    """What the server has counted so far."""

    transactions: int
    wal_bytes: int
    wal_records: int
    updates: int
    hot_updates: int

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(
            self.transactions - other.transactions,
            self.wal_bytes - other.wal_bytes,
            self.wal_records - other.wal_records,
            self.updates - other.updates,
            self.hot_updates - other.hot_updates,
        )


_COUNTS = text("""
    select (select xact_commit + xact_rollback from pg_stat_database where datname = current_database()),
           (select pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint,
           (select wal_records from pg_stat_wal),
           coalesce((select n_tup_upd from pg_stat_user_tables where relname = :table), 0),
           coalesce((select n_tup_hot_upd from pg_stat_user_tables where relname = :table), 0)
""")


@dataclass(slots=True)
class Stage:
    """Tables in a database of a server that belongs to this run."""

    engine: AsyncEngine
    table: Table
    dlq_table: Table

    async def reset(self) -> None:
        """Empty tables, never analysed."""
        async with self.engine.begin() as connection:
            await connection.run_sync(self.table.metadata.drop_all)
            await connection.run_sync(self.table.metadata.create_all)
            await connection.execute(text("create table if not exists business (id bigserial primary key, note text)"))
            await connection.execute(text("truncate business"))

    async def counts(self) -> Counts:
        """What the server has counted; waits for the backends to report."""
        async with self.engine.connect() as connection:
            await connection.execute(text("select pg_stat_force_next_flush()"))
            await connection.commit()
            await connection.execute(text("select pg_sleep(1.1)"))
            await connection.commit()
            row = (await connection.execute(_COUNTS, {"table": self.table.name})).one()
            return Counts(*(int(value) for value in row))

    @contextlib.asynccontextmanager
    async def held_snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A repeatable-read transaction that stays open, as an analyst's does."""
        async with self.engine.connect() as connection:
            await connection.execution_options(isolation_level="REPEATABLE READ")
            await connection.execute(text("select count(*) from business"))
            yield connection
            await connection.rollback()

    async def scheduled_elsewhere(self, rows: int) -> None:
        """So many messages of other queues, due tomorrow."""
        async with self.engine.begin() as connection:
            await connection.execute(
                text(
                    f"insert into {self.table.name} (queue, payload, next_attempt_at) "
                    "select 'other' || (i % 50), '{}', now() + interval '1 day' from generate_series(1, :rows) i"
                ),
                {"rows": rows},
            )


@contextlib.asynccontextmanager
async def stage(version: int = 18) -> AsyncIterator[Stage]:
    """A server, a database and an engine, for the length of a run."""
    with PostgresServer.start(version=version, settings=SETTINGS) as server:
        engine = create_async_engine(server.dsn(), pool_size=20)
        metadata = MetaData()
        made = Stage(engine, make_outbox_table(metadata), make_dlq_table(metadata))
        await made.reset()
        try:
            yield made
        finally:
            await engine.dispose()

"""Tables of any size for `bench.ten_million`: filled by the server itself, analysed, and left in peace.

Of the rows of a queue's table half have been due for an hour, in queues that nobody reads. The others are due
tomorrow, in the queues that are measured: four tenths in one, without keys, and a tenth in another one, with keys, of
which there are as many at either size. A log is written as the library would have
written it and sequenced by the library, so its ticks are as large as they get. Its first rows are old, the oldest
first, so that there is a slice to clean in each round; so are the first receipts of an inbox, whose ids are as
scattered as those of messages are.
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import md5
from uuid import UUID

from sqlalchemy import MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from bench.stage import SETTINGS
from faststream_outbox.log import LogTables, Outbox, make_log_tables
from faststream_outbox.schema import make_dlq_table, make_inbox_table, make_outbox_table
from faststream_outbox.testing.postgres import PostgresServer

PORTION = 500_000
QUEUE, KEYED_QUEUE, GROUP = "orders", "letters", "reader"
CONSUMER, SOURCE = "billing", "shop.orders"
OLD_SLICE = 1000
"""Messages that became old on the same day."""
OLDEST_DAYS = 100
KEYS = 1000

_QUEUE = """
    insert into {table} (queue, payload, headers, key, next_attempt_at, message_id)
    select case when i % 10 = 0 then '{keyed}' when i % 2 = 0 then '{queue}' else 'other' || i % 50 end,
           '{{"order_id": 12345, "amount": 99.5}}', '{{"content-type": "application/json"}}',
           case when i % 10 = 0 then 'key-' || i / 10 % {keys} end,
           now() + case when i % 2 = 0 then interval '1 day' else interval '-1 hour' end, md5(i::text)::uuid
    from generate_series({first}, {last}) i
"""
LOG = """
    with x as materialized (select pg_current_xact_id()::text::bigint as xid)
    insert into {table} (position, uri, slot, payload, metadata, created_at, transaction_id)
    select nextval('{table}_head_drawn_seq'), u.uri, get_byte(decode(md5(u.uri), 'hex'), 7),
           '{{"order_id": 12345, "amount": 99.5}}', '{{}}',
           statement_timestamp() - interval '1 day' * greatest(0, {oldest} - i / {slice}), x.xid
    from x, generate_series({first}, {last}) i, lateral (select 'orders/' || i % {keys} as uri) u
"""
_INBOX = """
    insert into {table} (consumer, source, message_id, received_at)
    select '{consumer}', '{source}', md5(i::text)::uuid::text,
           statement_timestamp() - interval '1 day' * greatest(0, {oldest} - i / {slice})
           - interval '1 millisecond' * ({last} - i)
    from generate_series({first}, {last}) i
"""
_PLACES = {
    "queue": QUEUE,
    "keyed": KEYED_QUEUE,
    "keys": KEYS,
    "oldest": OLDEST_DAYS,
    "slice": OLD_SLICE,
    "consumer": CONSUMER,
    "source": SOURCE,
}
_SIZE = """
    select sum(pg_table_size(c.oid))::float8, sum(pg_indexes_size(c.oid))::float8
    from pg_class c where c.oid = cast(:table as regclass)
"""


@dataclass(frozen=True, slots=True)
class Filled:
    """One size of everything: a queue's table, a log and an inbox, with so many rows each."""

    rows: int
    queue: Table
    dlq: Table
    log: LogTables
    inbox: Table

    def received(self, number: int) -> str:
        """The id of one of the receipts, by its row."""
        return str(UUID(md5(str(number).encode(), usedforsecurity=False).hexdigest()))


@dataclass(slots=True)
class LargeStage:
    """A server of its own, and what is in it."""

    server: PostgresServer
    engine: AsyncEngine

    async def filled(self, name: str, rows: int, parts: set[str]) -> Filled:
        """Tables of this name with so many rows, or empty ones for what is not among the parts."""
        metadata = MetaData()
        made = Filled(
            rows,
            make_outbox_table(metadata, f"{name}_queue"),
            make_dlq_table(metadata, f"{name}_dlq"),
            make_log_tables(metadata, f"{name}_log"),
            make_inbox_table(metadata, f"{name}_inbox"),
        )
        async with self.engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
        if "queue" in parts:
            await self.fill(made.queue, _QUEUE, rows, _PLACES)
        if "log" in parts:
            await self.fill(made.log.log, LOG, rows, _PLACES)
            await self._sequence(made)
        if "inbox" in parts:
            # Ids are scattered: an index that is built at the end is filled in a tenth of the time.
            await self.run(f"alter table {made.inbox.name} drop constraint {made.inbox.name}_pkey")
            await self.fill(made.inbox, _INBOX, rows, _PLACES)
            await self.run(f"alter table {made.inbox.name} add primary key (consumer, source, message_id)")
        return made

    async def fill(self, table: Table, statement: str, rows: int, places: Mapping[str, object]) -> None:
        """Insert so many rows in portions, with the indexes built at the end."""
        began = time.perf_counter()
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        async with self.engine.begin() as connection:
            await connection.execute(text("set local maintenance_work_mem = '512MB'"))
            for index in indexes:
                await connection.run_sync(index.drop)
        for first in range(0, rows, PORTION):
            last = min(first + PORTION, rows) - 1
            await self.run(statement.format(table=table.name, first=first, last=last, **places))
        async with self.engine.begin() as connection:
            await connection.execute(text("set local maintenance_work_mem = '512MB'"))
            for index in indexes:
                await connection.run_sync(index.create)
        await self.settled(table.name)
        reported(f"{table.name}: {rows:,} rows", began)

    async def _sequence(self, made: Filled) -> None:
        began = time.perf_counter()
        async with Outbox(self.engine, tables=made.log) as outbox, self.engine.begin() as connection:
            await outbox.seek(connection, "latest", GROUP, create=True)
        ticks = await self.number(f"select count(*) from {made.log.ticks.name}")
        await self.settled(made.log.ticks.name)
        reported(f"{made.log.log.name}: sequenced, {ticks:,.0f} ticks", began)

    async def settled(self, table: str) -> None:
        """Leave the server nothing to do about a table that it would do during a measurement."""
        async with self.engine.connect() as plain:
            connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
            await connection.execute(text(f"vacuum (analyze) {table}"))
            await connection.execute(text("checkpoint"))

    async def run(self, statement: str) -> None:
        """A statement in a transaction of its own."""
        async with self.engine.begin() as connection:
            await connection.exec_driver_sql(statement)

    async def number(self, query: str) -> float:
        """The answer to a question that has one number."""
        async with self.engine.connect() as connection:
            return await _number(connection, query)

    async def sizes(self, table: Table, rows: int) -> tuple[float, float]:
        """Bytes a row of a table, and of its indexes."""
        async with self.engine.connect() as connection:
            heap, indexes = (await connection.execute(text(_SIZE), {"table": table.name})).one()
        return heap / rows, indexes / rows


async def _number(connection: AsyncConnection, query: str) -> float:
    return float((await connection.execute(text(query))).scalar_one())


def reported(what: str, began: float) -> None:
    """Say how far it has come; filling takes minutes."""
    print(f"{what}, {time.perf_counter() - began:.0f} s", flush=True)


@asynccontextmanager
async def large_stage() -> AsyncIterator[LargeStage]:
    """A server with the settings of all benchmarks, for the length of a run.

    Without images of whole pages, which whoever first touches one after a checkpoint would pay for, and without
    autovacuum, also of the catalogs: what it reads and writes would be counted as that of whoever happens to run.
    """
    with PostgresServer.start(settings={**SETTINGS, "full_page_writes": "off", "autovacuum": "off"}) as server:
        engine = create_async_engine(server.dsn())
        try:
            yield LargeStage(server, engine)
        finally:
            await engine.dispose()

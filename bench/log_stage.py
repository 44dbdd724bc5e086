"""The stage of the log's benchmarks: logs of any size on one private PostgreSQL, and bare connections beside them.

A backlog is written by the server itself, as the library would have written it, and is not sequenced yet.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import asyncpg
import psycopg
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bench.stage import SETTINGS
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.testing.postgres import PostgresServer

KEYS = 1000

# One statement of the server's in place of a million messages over the wire.
_FILL = """
    with x as materialized (select pg_current_xact_id()::text::bigint as xid)
    insert into {log} (position, uri, slot, payload, metadata, created_at, transaction_id)
    select nextval('{log}_head_drawn_seq'), u.uri, get_byte(decode(md5(u.uri), 'hex'), 7),
           json_build_object('order_id', i, 'amount', 99.5), '{{}}', statement_timestamp(), x.xid
    from x, generate_series(1, {messages}) i, lateral (select 'orders/' || i % {keys} as uri) u
"""


@dataclass(slots=True)
class LogStage:
    """One database, at an address that names no driver."""

    dsn: str
    engine: AsyncEngine
    logs: list[Outbox] = field(default_factory=list)

    async def log(self, name: str, messages: int = 0) -> Outbox:
        """A log with a backlog that is not sequenced."""
        outbox = Outbox(self.engine, tables=make_log_tables(MetaData(), name, f"{name}_offsets"))
        await outbox.setup()
        self.logs.append(outbox)
        if messages:
            async with self.engine.begin() as connection:
                await connection.execute(text(_FILL.format(log=name, messages=messages, keys=KEYS)))
        return outbox

    async def settle(self) -> None:
        """Leave the server nothing to do that it would do during a measurement."""
        connection = await self.asyncpg()
        await connection.execute("vacuum analyze")
        await connection.execute("checkpoint")
        await connection.close()

    async def asyncpg(self) -> asyncpg.Connection:
        """A bare connection."""
        return await asyncpg.connect(self.dsn)

    async def psycopg(self) -> psycopg.AsyncConnection[Any]:
        """A bare connection of the other driver."""
        return await psycopg.AsyncConnection.connect(self.dsn, autocommit=True)


@contextlib.asynccontextmanager
async def log_stage(version: int = 18) -> AsyncIterator[LogStage]:
    """A server and an engine, for the length of a run."""
    with PostgresServer.start(version=version, settings=SETTINGS) as server:
        engine = create_async_engine(server.dsn(), pool_size=20)
        made = LogStage(server.dsn(driver=""), engine)
        try:
            yield made
        finally:
            for outbox in made.logs:
                await outbox.cleanup()
            await engine.dispose()


@dataclass(slots=True)
class Rates:
    """What was measured under some names, round after round."""

    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        """One more round."""
        self.rounds.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> float:
        return median(self.rounds[name])

    def get(self, name: str) -> float | None:
        """The median, if it was measured."""
        return self[name] if name in self.rounds else None

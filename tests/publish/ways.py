"""Every kind of session and connection that a message can be published through, behind one interface.

`begin` starts the caller's transaction where the driver does not do that by itself. The synchronous
ones run on the event loop's thread: nothing else has to happen meanwhile.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import psycopg2
from psycopg.rows import dict_row
from psycopg2.extras import RealDictCursor
from sqlalchemy import URL, Engine, Table, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from faststream_outbox._internal.envelope import Envelope
from faststream_outbox.publish import cancel_timer, cancel_timer_sync, publish, publish_sync


def message(body: bytes = b"{}", *, queue: str = "orders", **fields: Any) -> Envelope:
    return Envelope(queue=queue, body=body, **fields)


class Way:
    """An open session or connection of the caller's."""

    def __init__(self, session: Any, table: Table) -> None:
        self.session = session
        self.table = table

    async def begin(self) -> None:
        """Most begin by themselves."""

    async def publish(self, *envelopes: Any, **options: Any) -> list[int | None]:
        return await publish(self.session, self.table, *envelopes, **options)

    async def cancel(self, queue: str, timer_id: str) -> bool:
        return await cancel_timer(self.session, self.table, queue=queue, timer_id=timer_id)

    async def execute(self, sql: str) -> None:
        await self.session.execute(sql)

    async def commit(self) -> None:
        await self.session.commit()

    async def rollback(self) -> None:
        await self.session.rollback()


class AlchemyWay(Way):
    async def execute(self, sql: str) -> None:
        await self.session.execute(text(sql))


class AsyncpgWay(Way):
    async def begin(self) -> None:
        await self.session.execute("begin")

    async def commit(self) -> None:
        await self.session.execute("commit")

    async def rollback(self) -> None:
        await self.session.execute("rollback")


class SyncWay(Way):
    async def publish(self, *envelopes: Any, **options: Any) -> list[int | None]:
        return publish_sync(self.session, self.table, *envelopes, **options)

    async def cancel(self, queue: str, timer_id: str) -> bool:
        return cancel_timer_sync(self.session, self.table, queue=queue, timer_id=timer_id)

    async def execute(self, sql: str) -> None:
        with self.session.cursor() as cursor:
            cursor.execute(sql)

    async def commit(self) -> None:
        self.session.commit()

    async def rollback(self) -> None:
        self.session.rollback()


class SyncAlchemyWay(SyncWay):
    async def execute(self, sql: str) -> None:
        self.session.execute(text(sql))


def plain(url: URL) -> str:
    """The address as libpq and asyncpg take it."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


@asynccontextmanager
async def _async(url: URL, table: Table, driver: str, opened: Callable[[AsyncEngine], Any]) -> AsyncIterator[Way]:
    engine = create_async_engine(url.set(drivername=driver), poolclass=NullPool)
    async with opened(engine) as session:
        yield AlchemyWay(session, table)
    await engine.dispose()


@asynccontextmanager
async def _sync(url: URL, table: Table, driver: str, opened: Callable[[Engine], Any]) -> AsyncIterator[Way]:
    engine = create_engine(url.set(drivername=driver), poolclass=NullPool)
    with opened(engine) as session:
        yield SyncAlchemyWay(session, table)


@asynccontextmanager
async def _asyncpg(url: URL, table: Table) -> AsyncIterator[Way]:
    connection = await asyncpg.connect(plain(url))
    yield AsyncpgWay(connection, table)
    await connection.close()


@asynccontextmanager
async def _asyncpg_pool(url: URL, table: Table) -> AsyncIterator[Way]:
    async with asyncpg.create_pool(plain(url), min_size=1, max_size=1) as pool, pool.acquire() as connection:
        yield AsyncpgWay(connection, table)


@asynccontextmanager
async def _psycopg_async(url: URL, table: Table, **options: Any) -> AsyncIterator[Way]:
    connection = await psycopg.AsyncConnection.connect(plain(url), **options)
    yield Way(connection, table)
    await connection.close()


@asynccontextmanager
async def _raw_sync(url: URL, table: Table, connect: Callable[..., Any], **options: Any) -> AsyncIterator[Way]:
    connection = connect(plain(url), **options)
    yield SyncWay(connection, table)
    connection.close()


ASYNCPG, PSYCOPG, PSYCOPG2 = "postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg2"

WAYS: dict[str, Callable[[URL, Table], Any]] = {
    "AsyncSession asyncpg": lambda url, table: _async(url, table, ASYNCPG, AsyncSession),
    "AsyncSession psycopg": lambda url, table: _async(url, table, PSYCOPG, AsyncSession),
    "AsyncConnection asyncpg": lambda url, table: _async(url, table, ASYNCPG, AsyncEngine.connect),
    "AsyncConnection psycopg": lambda url, table: _async(url, table, PSYCOPG, AsyncEngine.connect),
    "Session psycopg": lambda url, table: _sync(url, table, PSYCOPG, Session),
    "Session psycopg2": lambda url, table: _sync(url, table, PSYCOPG2, Session),
    "Connection psycopg": lambda url, table: _sync(url, table, PSYCOPG, Engine.connect),
    "Connection psycopg2": lambda url, table: _sync(url, table, PSYCOPG2, Engine.connect),
    "raw asyncpg": _asyncpg,
    "raw asyncpg from a pool": _asyncpg_pool,
    "raw psycopg async": _psycopg_async,
    "raw psycopg async, dict rows": lambda url, table: _psycopg_async(url, table, row_factory=dict_row),
    "raw psycopg": lambda url, table: _raw_sync(url, table, psycopg.connect),
    "raw psycopg, dict rows": lambda url, table: _raw_sync(url, table, psycopg.connect, row_factory=dict_row),
    "raw psycopg2": lambda url, table: _raw_sync(url, table, psycopg2.connect),
    "raw psycopg2, dict rows": lambda url, table: _raw_sync(
        url, table, psycopg2.connect, cursor_factory=RealDictCursor
    ),
}

KINDS = (
    "AsyncSession asyncpg",
    "AsyncConnection psycopg",
    "Session psycopg2",
    "raw asyncpg from a pool",
    "raw psycopg async, dict rows",
    "raw psycopg",
    "raw psycopg2, dict rows",
)
"""One for each way in which statements are sent and rows are read, for what does not depend on the rest."""

"""A database's trouble that passes by itself, as drivers and SQLAlchemy really raise it. For tests of what it means."""

import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

Trouble = Callable[[URL], Awaitable[None]]


@contextmanager
def refusing() -> Iterator[int]:
    """A port at which nobody listens, and that nobody else gets."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


async def refused(driver: str) -> None:
    """Connect to a port that refuses."""
    with refusing() as port:
        url = URL.create(f"postgresql+{driver}", "postgres", host="127.0.0.1", port=port, database="postgres")
        await create_async_engine(url, poolclass=NullPool).connect()


async def not_waited_for(url: URL) -> None:
    """Ask for a lock that another session has."""
    engine = create_async_engine(url, poolclass=NullPool)
    lock = text("select pg_advisory_xact_lock(4711)"), text("set local lock_timeout = '10ms'")
    async with engine.connect() as first, engine.connect() as second:
        await first.execute(lock[0])
        await second.execute(lock[1])
        await second.execute(lock[0])


async def exhausted(url: URL) -> None:
    """Take more connections than a pool has."""
    engine = create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=0.01)
    try:
        async with engine.connect():
            await engine.connect()
    finally:
        await engine.dispose()


TROUBLES: dict[str, Trouble] = {
    "lock, asyncpg": not_waited_for,
    "lock, psycopg": lambda url: not_waited_for(url.set(drivername="postgresql+psycopg")),
    "pool": exhausted,
    "refused, asyncpg": lambda _: refused("asyncpg"),
    "refused, psycopg": lambda _: refused("psycopg"),
}

"""Opening a connection so that whoever is cancelled meanwhile leaves none behind.

Cancelled half-way, SQLAlchemy before 2.1 forgets what the driver has opened by then, and the server keeps it until the
process ends. So the opening goes on by itself for a moment, and what comes of it is closed. Used by `dedicated`, and by
health, which examines the tables through SQLAlchemy.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that an opening may still take of which nobody wants the connection; a server may never answer."""


class Connects(Protocol):
    """A pool, or whatever else opens connections where SQLAlchemy's synchronous code runs."""

    def connect(self) -> PoolProxiedConnection:
        """Open one."""
        ...


class Opened(NamedTuple):
    """A connection that belongs to no pool, and the driver's own object for it."""

    proxied: PoolProxiedConnection
    driver: Any

    @classmethod
    def of(cls, proxied: PoolProxiedConnection) -> Self:
        """Take a connection out of its pool."""
        driver: Any = proxied.driver_connection
        proxied.detach()
        return cls(proxied, driver)

    def hang_up(self) -> None:
        """Let psycopg see the end of the line, and keep the file.

        Closed while the event loop waits for it, its number could go to another socket, which nobody would hear then.
        """
        if self.driver.closed:
            return
        # Where no file can be opened any more, it is closed like that.
        with suppress(OSError), socket.fromfd(self.driver.fileno(), socket.AF_INET, socket.SOCK_STREAM) as line:
            line.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """End it at once, whatever it is doing."""
        if hasattr(self.driver, "terminate"):
            self.driver.terminate()
        else:
            self.driver.pgconn.finish()
        # Not closed: the pool would send a rollback first, and log its failure on a broken connection as an error.
        self.proxied.invalidate()


async def opened(pool: Connects) -> Opened:
    """A new connection."""
    opening = asyncio.ensure_future(greenlet_spawn(pool.connect))
    try:
        return Opened.of(await asyncio.shield(opening))
    except asyncio.CancelledError:
        _give_up(opening, lambda proxied: Opened.of(proxied).end())
        raise


@asynccontextmanager
async def connected(engine: AsyncEngine) -> AsyncGenerator[AsyncConnection]:
    """A connection of an engine, for as long as the block lasts."""
    opening = asyncio.ensure_future(engine.connect().start())
    try:
        connection = await asyncio.shield(opening)
    except asyncio.CancelledError:
        _give_up(opening, lambda unwanted: _keep(asyncio.ensure_future(_ended(unwanted))))
        raise
    try:
        yield connection
    finally:
        closing = asyncio.ensure_future(connection.close())
        _keep(closing)
        await asyncio.shield(closing)


_unwanted: set[asyncio.Future[Any]] = set()
"""Kept from the garbage collector until they have come to their end."""


async def _ended(connection: AsyncConnection) -> None:
    # Not only closed: its pool, which may be gone by now, would keep it.
    await connection.invalidate()
    await connection.close()


def _keep(task: asyncio.Future[Any]) -> None:
    _unwanted.add(task)
    task.add_done_callback(_unwanted.discard)


def _give_up(opening: asyncio.Future[T], end: Callable[[T], object]) -> None:
    """Let it come to its end, and end what it opened."""

    def drop(done: asyncio.Future[T]) -> None:
        if not done.cancelled() and done.exception() is None:
            end(done.result())

    _keep(opening)
    opening.add_done_callback(drop)
    asyncio.get_running_loop().call_later(PATIENCE, opening.cancel)

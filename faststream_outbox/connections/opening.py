"""Opening a connection so that whoever is cancelled meanwhile leaves none behind.

Cancelled half-way, SQLAlchemy before 2.1 forgets what the driver has opened by then, and the server keeps it until the
process ends. So the opening goes on by itself for a moment, and what comes of it is closed. Used by `dedicated`.
"""

import asyncio
from typing import Any, NamedTuple, Protocol, Self

from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

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
        _unwanted.add(opening)
        opening.add_done_callback(_drop)
        asyncio.get_running_loop().call_later(PATIENCE, opening.cancel)
        raise


_unwanted: set[asyncio.Future[PoolProxiedConnection]] = set()
"""Kept from the garbage collector until they have come to their end."""


def _drop(opening: asyncio.Future[PoolProxiedConnection]) -> None:
    _unwanted.discard(opening)
    if not opening.cancelled() and opening.exception() is None:
        Opened.of(opening.result()).end()

"""How a connection of ours comes about, and what it is set to.

Cancelled half-way, SQLAlchemy before 2.1 forgets what the driver has opened by then, and the server keeps it until the
process ends. So the opening goes on by itself for a moment, and what comes of it is closed. How the server plans and
how long it waits is set whatever a role or a database has set: when a connection has opened, or with each transaction
behind a pooler. `engine_apart` makes an engine by the recipe of the application's, with a pool of its own that keeps
nothing and without its isolation level, for whoever must not wait for a pool that may be exhausted. Used by
`dedicated`, and by the doctor and `health`, which examine the tables through SQLAlchemy.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from sqlalchemy import Engine
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


BEGIN = "begin isolation level read committed"
# The server ends the transaction of a client that froze or was cut off half-way: others wait for its locks.
IDLE_IN_TRANSACTION = 2.0
_SLACK = 1.0
"""Seconds by which the server gives a statement up later than we do."""
_HAS_TRANSACTION_TIMEOUT = 17

# A plan cached while the queue was empty would be a sequential scan, and outlive the emptiness; a bitmap scan never
# marks dead index entries; compiling takes longer than any statement here, and so does planning: left to itself the
# server plans a claim anew each time. Behind a pooler no plan is cached.
_PLANS = (
    "select set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false), "
    "set_config('jit', 'off', false), set_config('plan_cache_mode', 'force_generic_plan', false)"
)


def limits_of(timeout: float, lock_seconds: float, server_version: int) -> dict[str, str]:
    """What a role or a database may have limited, as our statements need it."""
    found = {
        "statement_timeout": str(int((timeout + _SLACK) * 1000)),
        "lock_timeout": str(int(lock_seconds * 1000)),
        "idle_in_transaction_session_timeout": str(int(IDLE_IN_TRANSACTION * 1000)),
    }
    if server_version >= _HAS_TRANSACTION_TIMEOUT:
        found["transaction_timeout"] = "0"
    return found


def settings_of_transaction(application_name: str, given: dict[str, str]) -> str:
    """How a transaction begins where the next one may run on another connection of the server."""
    local = [f"application_name = {_quoted(application_name)}", *(f"{name} = {value}" for name, value in given.items())]
    return "; set local ".join([BEGIN, *local])


def settings_of_session(application_name: str, given: dict[str, str]) -> str:
    """A statement that sets everything for as long as the connection lasts."""
    lasting = {**given, "idle_session_timeout": "0"}
    set_limits = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in lasting.items())
    return f"{_PLANS}, set_config('application_name', {_quoted(application_name)}, false), {set_limits}"


def _quoted(name: str) -> str:
    # As E'…': a backslash in the application's own name means one whatever standard_conforming_strings says.
    return "E'" + name.replace("\\", "\\\\").replace("'", "''") + "'"


def engine_apart(engine: AsyncEngine) -> AsyncEngine:
    """Another engine for the same database; dispose of it."""
    sync = engine.sync_engine
    options = dict(sync.get_execution_options())
    options.pop("isolation_level", None)
    return AsyncEngine(
        Engine(sync.pool.recreate(), sync.dialect, sync.url, execution_options=options, hide_parameters=True)
    )

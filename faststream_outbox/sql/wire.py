"""A connection of the library's own, which runs named statements on the driver itself.

It is made by the engine's own connection settings (SSL, `connect_args`, `async_creator`, events) but
never taken from the application's pool, so that neither waits for the other. Each statement is a
transaction: sent alone where that is enough, in an explicit READ COMMITTED one where a pooler stands
in between or the database defaults to another isolation level. Its time limits are its own, whatever
the role's are. After any error the connection is thrown away and the next statement opens a fresh
one: the caller decides whether to try again. Used by the queue's and the log's loops, the listener
and the notifier.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import PoolProxiedConnection
from sqlalchemy.util import greenlet_spawn

from faststream_outbox.errors import ConnectionUnusable
from faststream_outbox.sql import Statement
from faststream_outbox.sql.address import Address
from faststream_outbox.sql.dialling import Dialling

Row = Sequence[Any]
T = TypeVar("T")

_PROBE = "select pg_backend_pid(), current_setting('default_transaction_isolation'), pg_is_in_recovery()"
_BEGIN = "begin isolation level read committed"
# The server ends the transaction of a client that froze or was cut off half-way: others wait for its locks.
_IDLE_IN_TRANSACTION = "2000"
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
STATEMENT_TIMEOUT = 30.0


def _limits(timeout: float, lock_seconds: float, server_version: int) -> dict[str, str]:
    """What a role or a database may have limited, as our statements need it."""
    limits = {
        "statement_timeout": str(int((timeout + _SLACK) * 1000)),
        "lock_timeout": str(int(lock_seconds * 1000)),
        "idle_in_transaction_session_timeout": _IDLE_IN_TRANSACTION,
    }
    if server_version >= _HAS_TRANSACTION_TIMEOUT:
        limits["transaction_timeout"] = "0"
    return limits


class Wire:
    """One lazily opened connection; statements are run one at a time, in the order of their arrival."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        timeout: float = STATEMENT_TIMEOUT,
        lock_seconds: float = 0.0,
        address: Address | None = None,
    ) -> None:
        driver = engine.dialect.driver
        if driver not in ("asyncpg", "psycopg", "psycopg_async"):
            msg = (
                f"The engine uses the driver {driver!r}. Workers need asyncpg or psycopg 3: "
                "create_async_engine('postgresql+asyncpg://…') or 'postgresql+psycopg://…'."
            )
            raise ConnectionUnusable(msg)
        self._engine = engine
        self._dialling = None if address is None else Dialling(engine, address)
        self._asyncpg = driver == "asyncpg"
        self.timeout = timeout
        """Seconds that a statement may take before its connection is given up."""
        self._lock_seconds = lock_seconds
        """Seconds that a statement waits for a lock; 0 is no limit."""
        self._turn: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._proxied: PoolProxiedConnection | None = None
        self._driver: Any = None  # an asyncpg or psycopg connection, neither of which need be installed
        self._explicit = False
        self._begin = _BEGIN
        self.openings = 0
        """How often it was opened: what was read before the last time may be of another server."""
        self.pooled = False
        """Whether a pooler stands between this connection and the server."""

    @property
    def _lock(self) -> asyncio.Lock:
        """Whose turn it is in the running event loop; a connection of another loop went with it."""
        loop = asyncio.get_running_loop()
        if self._turn is None or self._loop is not loop:
            if self._driver is not None and not self._asyncpg:
                self._driver.pgconn.finish()
            self._proxied = self._driver = None
            self._turn, self._loop = asyncio.Lock(), loop
        return self._turn

    def sibling(self) -> "Wire":
        """Another connection by the same recipe."""
        address = None if self._dialling is None else self._dialling.address
        return Wire(self._engine, timeout=self.timeout, lock_seconds=self._lock_seconds, address=address)

    @property
    def is_open(self) -> bool:
        """Whether a connection is held that has not failed."""
        return self._driver is not None

    async def open(self) -> None:
        """Connect, unless connected; so that a failure can be told from that of a statement."""
        async with self._lock:
            if self._driver is not None:
                return
            try:
                async with asyncio.timeout(self.timeout):
                    await self._interruptible(self._open())
            except BaseException:
                await self._discard()
                raise

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """Run one statement as one transaction and return its rows."""
        async with self._lock:
            try:
                async with asyncio.timeout(self.timeout):
                    return await self._interruptible(self._run(statement, values))
            except BaseException:
                # Cancelled or failed half-way: what the connection will answer next is unknown.
                await self._discard()
                raise

    async def fetch_each(
        self, steps: Sequence[tuple[Statement, Mapping[str, Any]]], *, lock_seconds: float | None = None
    ) -> list[Sequence[Row]]:
        """Run statements in one transaction; ends it after the first that returns no row, without the rest.

        Waits no longer than `lock_seconds` for a lock.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(self.timeout):
                    return await self._interruptible(self._run_each(steps, lock_seconds))
            except BaseException:
                await self._discard()
                raise

    async def _run_each(
        self, steps: Sequence[tuple[Statement, Mapping[str, Any]]], lock_seconds: float | None
    ) -> list[Sequence[Row]]:
        if self._driver is None:
            await self._open()
        driver: Any = self._driver
        results: list[Sequence[Row]] = []
        patience = "" if lock_seconds is None else f"; set local lock_timeout = {int(lock_seconds * 1000)}"
        await driver.execute(self._begin + patience)
        for statement, values in steps:
            if self._asyncpg and self.pooled:
                rows = await (await driver.prepare(statement.dollar, name="")).fetch(*statement.arguments(values))
            elif self._asyncpg:
                rows = await driver.fetch(statement.dollar, *statement.arguments(values))
            else:
                rows = await (await driver.execute(statement.pyformat, values, binary=True)).fetchall()
            results.append(rows)
            if not rows:
                break
        await driver.execute("commit")
        return results

    async def _interruptible(self, running: Coroutine[Any, Any, T]) -> T:
        """End the connection before what runs on it is cancelled.

        psycopg answers a cancellation by asking the server to cancel, and waits for that: ten seconds where
        nobody answers, and for ever in older versions.
        """
        if self._asyncpg:
            return await running
        task = asyncio.ensure_future(running)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._driver is not None:
                self._driver.pgconn.finish()
            task.cancel()
            # It may end with an error of the driver's, now or later, which says nothing new.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            # While it connects there is nothing to end yet; it is left to itself.
            await asyncio.wait([task], timeout=1.0)
            raise

    async def _run(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        if self._driver is None:
            await self._open()
        driver: Any = self._driver
        if self._asyncpg:
            arguments = statement.arguments(values)
            if not self._explicit:
                rows: Sequence[Row] = await driver.fetch(statement.dollar, *arguments)
                return rows
            # No transaction block of asyncpg's: its rollback outlasts our timeout where the server falls silent.
            await driver.execute(self._begin)
            # The unnamed statement: nothing that another client of the pooler could stumble over.
            prepared = await driver.prepare(statement.dollar, name="")
            rows = await prepared.fetch(*arguments)
            await driver.execute("commit")
            return rows
        if self._explicit:
            await driver.execute(self._begin)
        cursor = await driver.execute(statement.pyformat, values, binary=True)
        rows = await cursor.fetchall() if cursor.description is not None else []
        if self._explicit:
            await driver.execute("commit")
        return rows

    async def _open(self) -> None:
        # A pool of the same recipe, for this one connection: the application's pool may be exhausted.
        pool = self._engine.sync_engine.pool.recreate() if self._dialling is None else self._dialling
        proxied = await greenlet_spawn(pool.connect)
        driver: Any = proxied.driver_connection
        proxied.detach()
        self._proxied, self._driver = proxied, driver
        self.openings += 1
        if self._asyncpg:
            await driver.execute(_BEGIN)
            prepared = await driver.prepare(_PROBE, name="")
            pid, isolation, standby = await prepared.fetchrow()
            await driver.execute("commit")
            self.pooled = pid != driver.get_server_pid()
        else:
            await driver.set_autocommit(True)
            await driver.execute(_BEGIN)
            pid, isolation, standby = await (await driver.execute(_PROBE, prepare=False)).fetchone()
            await driver.execute("commit")
            self.pooled = pid != driver.info.backend_pid
            if self.pooled:
                driver.prepare_threshold = None
        self._explicit = self.pooled or isolation != "read committed"
        await self._set_limits(driver)
        if standby:
            msg = "The engine is connected to a read-only standby. Point it at the primary."
            raise ConnectionUnusable(msg)

    async def _set_limits(self, driver: Any) -> None:
        version = driver.get_server_version()[0] if self._asyncpg else driver.info.server_version // 10_000
        limits = _limits(self.timeout, self._lock_seconds, version)
        if self.pooled:
            # The next transaction may run on another server connection.
            self._begin = "; set local ".join([_BEGIN, *(f"{name} = {value}" for name, value in limits.items())])
            return
        self._begin = _BEGIN
        limits["idle_session_timeout"] = "0"
        settings = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in limits.items())
        await driver.execute(f"{_PLANS}, {settings}")

    async def listen(self, channel: str, receive: Callable[[int, str], None], lost: Callable[[], None]) -> None:
        """Open the connection, LISTEN on `channel`, and call `receive` with each sender's process id and payload."""
        async with self._lock:
            try:
                async with asyncio.timeout(self.timeout):
                    await self._interruptible(self._subscribe(channel, receive, lost))
            except BaseException:
                await self._discard()
                raise

    async def _subscribe(self, channel: str, receive: Callable[[int, str], None], lost: Callable[[], None]) -> None:
        if self._driver is None:
            await self._open()
        driver: Any = self._driver
        if self._asyncpg:
            driver.add_termination_listener(lambda _: lost())
            await driver.add_listener(channel, lambda *sent: receive(sent[1], sent[3]))
        else:
            quoted = '"' + channel.replace('"', '""') + '"'
            driver.add_notify_handler(lambda notify: receive(notify.pid, notify.payload))
            await driver.execute(f"listen {quoted}")

    async def wait_readable(self) -> None:
        """Wait until the server has sent something; needed where the driver does not read by itself."""
        if self._asyncpg or self._driver is None:
            await asyncio.Event().wait()
        driver: Any = self._driver
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        descriptor: int = driver.fileno()
        loop.add_reader(descriptor, readable.set)
        try:
            await readable.wait()
        finally:
            loop.remove_reader(descriptor)

    async def _discard(self) -> None:
        proxied, driver = self._proxied, self._driver
        self._proxied = self._driver = None
        if proxied is None:
            return
        if self._asyncpg:
            driver.terminate()
        else:
            driver.pgconn.finish()
        # Not closed: the pool would send a rollback first, and log its failure on a broken connection as an error.
        proxied.invalidate()

    async def close(self) -> None:
        """Close the connection; the next statement would open another."""
        async with self._lock:
            driver = self._driver
            if self._asyncpg and driver is not None and not driver.is_closed():
                with contextlib.suppress(Exception):
                    # A polite goodbye; `_discard` ends it anyway.
                    await driver.close(timeout=1.0)
            await self._discard()

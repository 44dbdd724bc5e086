"""A connection of the library's own, which runs named statements on the driver itself.

It is made by the engine's own connection settings (SSL, `connect_args`, `async_creator`, events) but
never taken from the application's pool, so that neither waits for the other. Each statement is a
transaction: sent alone where that is enough, in an explicit READ COMMITTED one where a pooler stands
in between or the database defaults to another isolation level. Its time limits are its own, whatever
the role's are. After any error the connection is thrown away and the next statement opens a fresh
one: the caller decides whether to try again. Only a transaction that the server gave up because this
process stood still runs again by itself. It tells the server by its `application_name` who it is and
what it is for; behind a pooler only while it does something, so that no other client bears its name.
Used by the queue's and the log's loops, the listener, the notifier and the overview.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol, TypeVar

from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections import opening
from faststream_outbox._internal.connections.address import Address, Dialling
from faststream_outbox._internal.connections.cause import is_lost
from faststream_outbox._internal.connections.identity import Identity, Role
from faststream_outbox._internal.connections.opening import BEGIN, IDLE_IN_TRANSACTION, Opened, opened
from faststream_outbox._internal.schema.names import check_given
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.errors import ConnectionUnusable

Row = Sequence[Any]
T = TypeVar("T")

_PROBE = (
    "select pg_backend_pid(), current_setting('default_transaction_isolation'), pg_is_in_recovery(), "
    "current_setting('application_name')"
)
_IDLE_WHILE_HOLDING = 3600.0
STATEMENT_TIMEOUT = 30.0
LOCK_PATIENCE = 25.0
"""A wait for a lock fails as such after this time, before a message looks as if it could not be read in time."""


class Connection(Protocol):
    """What delivering asks of a connection: a `DedicatedConnection`, or one that leads to tables in memory."""

    timeout: float
    answered_at: float

    @property
    def is_open(self) -> bool:
        """Whether it is; `fetch` opens it."""
        ...

    async def open(self) -> None:
        """Open it, if it is not."""
        ...

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """Run one statement as one transaction and return its rows."""
        ...

    async def close(self) -> None:
        """End it; the next statement opens another one."""
        ...


class DedicatedConnection:
    """One lazily opened connection; statements are run one at a time, in the order of their arrival."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        timeout: float = STATEMENT_TIMEOUT,
        lock_seconds: float = 0.0,
        address: Address | None = None,
        identity: Identity | None = None,
        role: Role = "other",
        on_standby: bool = False,
    ) -> None:
        check_given(engine)
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
        self._identity = identity or Identity()
        self._role: Role = role
        self._may_be_standby = on_standby
        self.is_standby: bool = False
        """Whether the server that was connected to last only reads."""
        self._turn: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: Opened | None = None
        self._driver: Any = None  # an asyncpg or psycopg connection, neither of which need be installed
        self._explicit = False
        self._is_given_up = False
        """Whether nobody waits any more for what runs."""
        self._begin = BEGIN
        self.openings: int = 0
        """How often it was opened: what was read before the last time may be of another server."""
        self.answered_at: float = float("-inf")
        """When the server last answered a statement, on the clock of `monotonic`."""
        self.pooled: bool = False
        """Whether a pooler stands between this connection and the server."""

    @property
    def _lock(self) -> asyncio.Lock:
        """Whose turn it is in the running event loop; a connection of another loop went with it."""
        loop = asyncio.get_running_loop()
        if self._turn is None or self._loop is not loop:
            if self._driver is not None and not self._asyncpg:
                self._driver.pgconn.finish()
            self._opened = self._driver = None
            self._turn, self._loop = asyncio.Lock(), loop
        return self._turn

    def sibling(self, role: Role | None = None) -> "DedicatedConnection":
        """Another connection by the same recipe, for the same purpose or another."""
        address = None if self._dialling is None else self._dialling.address
        return DedicatedConnection(
            self._engine,
            timeout=self.timeout,
            lock_seconds=self._lock_seconds,
            address=address,
            identity=self._identity,
            role=role or self._role,
            on_standby=self._may_be_standby,
        )

    @property
    def is_open(self) -> bool:
        """Whether a connection is held that has not failed."""
        return self._driver is not None

    async def open(self) -> None:
        """Connect, unless connected; so that its failure is not taken for that of a statement."""
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
                    rows = await self._interruptible(self._run(statement, values))
                self.answered_at = monotonic()
                return rows
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
                    results = await self._interruptible(self._run_each(steps, lock_seconds))
                self.answered_at = monotonic()
                return results
            except BaseException:
                await self._discard()
                raise

    @contextlib.asynccontextmanager
    async def holding(
        self, statement: Statement, values: Mapping[str, Any], *, idle_seconds: float = _IDLE_WHILE_HOLDING
    ) -> AsyncGenerator[bool]:
        """Keep a transaction open that has run one statement; whether that returned a row.

        For a lock that outlasts the work of other connections. It holds no snapshot meanwhile. The connection is closed
        at the end; should it be lost before, so is the lock, and nobody hears of it. The server ends it after
        `idle_seconds`: a process that is frozen by then does not keep it.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(self.timeout):
                    rows = await self._interruptible(self._begin_with(statement, values, idle_seconds))
                yield bool(rows)
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(1.0):
                        await self._interruptible(self._driver.execute("rollback"))
            finally:
                await self._discard()

    async def _begin_with(self, statement: Statement, values: Mapping[str, Any], idle_seconds: float) -> Sequence[Row]:
        if self._driver is None:
            await self._open()
        patience = f"; set local idle_in_transaction_session_timeout = {int(idle_seconds * 1000)}"
        driver: Any = self._driver
        await driver.execute(self._begin + patience)
        rows = await self._rows(statement, values)
        # The server keeps the snapshot of the last answer until it hears something else.
        await driver.execute("savepoint held")
        return rows

    async def _rows(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """The rows of a statement, in the transaction that is open if one is."""
        driver: Any = self._driver
        if self._asyncpg:
            arguments = statement.arguments(values)
            if not self.pooled:
                rows: Sequence[Row] = await driver.fetch(statement.dollar, *arguments)
                return rows
            # The unnamed statement: nothing that another client of the pooler could stumble over.
            rows = await (await driver.prepare(statement.dollar, name="")).fetch(*arguments)
            return rows
        cursor = await driver.execute(statement.pyformat, values, binary=True)
        return await cursor.fetchall() if cursor.description is not None else []

    async def _run_each(
        self, steps: Sequence[tuple[Statement, Mapping[str, Any]]], lock_seconds: float | None
    ) -> list[Sequence[Row]]:
        begun = monotonic()
        try:
            results = await self._run_steps(steps, lock_seconds)
        except Exception as error:
            if self._is_given_up or monotonic() - begun < IDLE_IN_TRANSACTION or not is_lost(error):
                raise
            # The event loop stood still for so long that the server took us for dead. Nothing was committed.
            await self._discard()
            results = await self._run_steps(steps, lock_seconds)
        await self._driver.execute("commit")
        return results

    async def _run_steps(
        self, steps: Sequence[tuple[Statement, Mapping[str, Any]]], lock_seconds: float | None
    ) -> list[Sequence[Row]]:
        """All of a transaction but its COMMIT."""
        if self._driver is None:
            await self._open()
        driver: Any = self._driver
        results: list[Sequence[Row]] = []
        patience = "" if lock_seconds is None else f"; set local lock_timeout = {int(lock_seconds * 1000)}"
        begun = monotonic()
        await driver.execute(self._begin + patience)
        for statement, values in steps:
            rows = await self._rows(statement, values)
            results.append(rows)
            if not rows:
                break
        if monotonic() - begun > IDLE_IN_TRANSACTION / 2:
            # A COMMIT that is not answered may have come about or not: ask first whether anybody is there.
            await driver.execute("select 1")
        return results

    async def _interruptible(self, running: Coroutine[Any, Any, T]) -> T:
        """End the connection before what runs on it is cancelled.

        psycopg answers a cancellation by asking the server to cancel, and waits for that: ten seconds where
        nobody answers, and for ever in older versions.
        """
        if self._asyncpg:
            return await running
        self._is_given_up = False
        task = asyncio.ensure_future(running)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._is_given_up = True
            if self._opened is None:
                # While it connects there is nothing to end yet.
                task.cancel()
            else:
                self._opened.hang_up()
            # It may end with an error of the driver's, now or later, which says nothing new.
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            await asyncio.wait([task], timeout=1.0)
            raise

    async def _run(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        if self._driver is None:
            await self._open()
        if self._explicit:
            # No transaction block of asyncpg's: its rollback outlasts our timeout where the server falls silent.
            return (await self._run_each([(statement, values)], None))[0]
        return await self._rows(statement, values)

    async def _open(self) -> None:
        # A pool of the same recipe, for this one connection: the application's pool may be exhausted.
        pool = self._engine.sync_engine.pool.recreate() if self._dialling is None else self._dialling
        self._opened = await opened(pool)
        driver = self._driver = self._opened.driver
        self.openings += 1
        if self._asyncpg:
            await driver.execute(BEGIN)
            prepared = await driver.prepare(_PROBE, name="")
            pid, isolation, self.is_standby, application = await prepared.fetchrow()
            await driver.execute("commit")
            self.pooled = pid != driver.get_server_pid()
        else:
            await driver.set_autocommit(True)
            await driver.execute(BEGIN)
            cursor = await driver.execute(_PROBE, prepare=False)
            pid, isolation, self.is_standby, application = await cursor.fetchone()
            await driver.execute("commit")
            self.pooled = pid != driver.info.backend_pid
            if self.pooled:
                driver.prepare_threshold = None
        self._explicit = self.pooled or isolation != "read committed"
        await self._set_limits(driver, self._identity.name(self._role, application))
        if self.is_standby and not self._may_be_standby:
            msg = "The engine is connected to a read-only standby. Point it at the primary."
            raise ConnectionUnusable(msg)

    async def _set_limits(self, driver: Any, application_name: str) -> None:
        version = driver.get_server_version()[0] if self._asyncpg else driver.info.server_version // 10_000
        limits = opening.limits_of(self.timeout, self._lock_seconds, version)
        if self.pooled:
            self._begin = opening.settings_of_transaction(application_name, limits)
            return
        self._begin = BEGIN
        await driver.execute(opening.settings_of_session(application_name, limits))

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
            await driver.add_listener(channel, lambda _driver, pid, _channel, payload: receive(pid, payload))
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
        held, self._opened, self._driver = self._opened, None, None
        if held is not None:
            held.end()

    async def close(self) -> None:
        """Close the connection; the next statement would open another."""
        async with self._lock:
            driver = self._driver
            try:
                if self._asyncpg and driver is not None and not driver.is_closed():
                    with contextlib.suppress(Exception):
                        # A polite goodbye; `_discard` ends it anyway.
                        await driver.close(timeout=1.0)
            finally:
                await self._discard()

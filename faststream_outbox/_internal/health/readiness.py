"""Whether the database answers and has the tables, asked as seldom as possible.

What the loops' own connections have just heard is answer enough. Where they are silent, one question at a time goes
over a connection of its own, however many ask: nobody queues behind deliveries or for the application's pool. Tables
are examined once, seldom afterwards, and again soon while they do not fit. Kept for each broker; called by `health`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.cause import has_state
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.connections.opening import connected, engine_apart
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.health.progress import Parts
from faststream_outbox._internal.schema.check import find_differences, find_log_differences
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox._internal.sql.statements import statements
from faststream_outbox.errors import OutboxError

FRESH_SECONDS = 2.0
"""An answer that is no older need not be asked for again."""
EXAMINE_SECONDS = 300.0
EXAMINE_AGAIN_SECONDS = 5.0
"""How soon tables are examined again that did not fit, or that could not be examined."""
ANSWER_SECONDS = 5.0
"""How long the server may take, before its connection is given up."""
KEEP_SECONDS = 30.0
"""How long a connection stays open after the last question."""
MOST_WORDS = 5


@dataclass(frozen=True, slots=True)
class Found:
    """What was found out about the database: why it cannot be used, and what is wrong with it otherwise."""

    unready: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()


class Readiness:
    """The last answer, and how the next one is got."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        part = parts.client or parts.log
        assert part is not None, "there is nothing to ask"
        self._engine: AsyncEngine = part.engine
        self._events: Events = part.events
        self._ping = statements("control", part.names)["ping"]
        self._connection = DedicatedConnection(self._engine, timeout=ANSWER_SECONDS, identity=part.identity)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking: asyncio.Task[None] | None = None
        self._closing: asyncio.TimerHandle | None = None
        self._asked_at = float("-inf")
        self._error: str | None = None
        self._tables: Found | None = None
        self._examine_at = self._examined_at = float("-inf")
        self._was_told = False
        self._events.subscribe(self._heard, events.StatementFailed)

    def _heard(self, event: events.StatementFailed) -> None:
        """A statement that the server does not understand casts doubt on the tables."""
        if has_state(event.error, "42"):
            self._examine_at = min(self._examine_at, monotonic())

    async def ask(self, timeout: float | None) -> Found:
        """What is known of the database, by now or after a question that takes no longer than this."""
        if not self._is_fresh:
            await asyncio.wait([self.begin()], timeout=timeout)
        if not self._is_answered:
            late = "" if timeout is None else f" within {timeout:g} s"
            return Found((self._error or f"the database has not answered{late}",))
        return self._tables or Found(("the tables were not examined yet",))

    def begin(self) -> asyncio.Task[None]:
        """Ask, unless somebody does so already."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._asking, self._closing = loop, None, None
        if self._asking is None or self._asking.done():
            self._asking = loop.create_task(self._ask(), name="outbox health")
        return self._asking

    @property
    def _heard_at(self) -> float:
        """When the server last answered anybody."""
        answered = (connection.answered_at for connection in self._parts.connections)
        return max(self._connection.answered_at, self._examined_at, *answered)

    @property
    def _is_answered(self) -> bool:
        return monotonic() - self._heard_at < 2 * FRESH_SECONDS

    @property
    def _is_fresh(self) -> bool:
        """Whether there is nothing to ask for."""
        now = monotonic()
        is_known = now - max(self._heard_at, self._asked_at) < FRESH_SECONDS
        return is_known and self._tables is not None and now < self._examine_at

    async def _ask(self) -> None:
        try:
            if self._tables is None or monotonic() >= self._examine_at:
                await self._examine()
            if monotonic() - self._heard_at >= FRESH_SECONDS:
                await self._connection.fetch(self._ping, {})
                self._keep()
            self._error = None
        except Exception as error:  # noqa: BLE001 - that is the answer
            self._error = f"the database does not answer: {_said(error)}"
        finally:
            self._asked_at = monotonic()

    async def _examine(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                differences = await examined(self._engine, self._parts)
        except Exception as error:  # noqa: BLE001 - what was known of them stays as it was
            self._examine_at = monotonic() + EXAMINE_AGAIN_SECONDS
            if self._tables is None:
                self._tables = Found((f"the tables cannot be examined: {_said(error)}",))
            return
        self._examined_at = monotonic()
        fatal = tuple(_words(one) for one in differences if one.is_fatal)
        others = tuple(_words(one) for one in differences if not one.is_fatal)
        self._tables = Found(fatal[:MOST_WORDS], others[:MOST_WORDS])
        self._examine_at = monotonic() + (EXAMINE_AGAIN_SECONDS if fatal else EXAMINE_SECONDS)
        self._tell(fatal)

    def _tell(self, fatal: tuple[str, ...]) -> None:
        if fatal:
            self._events.emit(events.SchemaDiffers(fatal))
        elif self._was_told:
            self._events.emit(events.SchemaFits())
        self._was_told = bool(fatal)

    def _keep(self) -> None:
        """Close the connection some time after the last question."""
        if self._closing is not None:
            self._closing.cancel()
        assert self._loop is not None
        loop = self._loop
        self._closing = loop.call_later(KEEP_SECONDS, lambda: loop.create_task(self._connection.close()))

    async def close(self) -> None:
        """Ask no more, and close what is open; a later question opens it again."""
        if self._loop is not asyncio.get_running_loop():
            return
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        asking, self._asking = self._asking, None
        if asking is not None and not asking.done():
            asking.cancel()
            await asyncio.wait([asking])
        await self._connection.close()


def _said(error: Exception) -> str:
    """What anybody may read of an error: of a driver's, which may name hosts and users, its kind."""
    return str(error) if isinstance(error, OutboxError) else type(error).__name__


def _words(difference: Difference) -> str:
    return f"{difference.where}: {difference.problem}"


async def examined(engine: AsyncEngine, parts: Parts) -> Sequence[Difference]:
    """How the tables differ from what they should be; on a connection of its own, with a limit of the server's."""
    apart = engine_apart(engine)
    try:
        async with connected(apart) as connection, connection.begin():
            await connection.execute(text(f"set local statement_timeout = '{int(ANSWER_SECONDS * 1000)}'"))
            differences: list[Difference] = []
            if parts.client is not None:
                table: Table = parts.client.table
                differences += await find_differences(connection, table, parts.client.dlq_table)
            if parts.log is not None:
                tables: LogTables = parts.log.tables
                differences += await find_log_differences(connection, tables)
            return differences
    finally:
        await apart.dispose()

"""What an operator works with: one database, and the parts of the library that look at it and change it.

Each part is made when it is first asked for, so that nobody connects for what is not used. One whose table was not
given raises what the caller's `missing` makes of its kind: a refusal that names an option, or an error that names a
keyword. A broker of this process brings its client along, whose workers hear of a change at once. Used by the command
line for one command, and by the dashboard for as long as it is served; both call `close`, which ends what was made here
and neither the engine nor what is the broker's.
"""

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal.events.event_log import Log
from faststream_outbox._internal.overview.overview import TIMEOUT, Overview
from faststream_outbox._internal.publish.put import cancel_timer
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.dead_letters import DeadLetters
from faststream_outbox._internal.queue.pause import pause, resume
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox._internal.schema.log_tables import LogTables

if TYPE_CHECKING:
    from faststream_outbox._internal.doctor.doctor import Doctor
    from faststream_outbox._internal.log.admin.positions import Place
    from faststream_outbox._internal.log.outbox import Outbox
    from faststream_outbox._internal.log.sharing.slots import Cursor

T = TypeVar("T")
Kind = Literal["queues", "dead letters", "topics", "receipts"]


class Operator:
    """Answers and calls, for one database.

    engine: of that database; never closed here.
    tables: those that there are.
    broker: the OutboxBroker of this process whose tables they are; None where there is none.
    timeout: seconds that one question may take.
    missing: the error for whoever wants what there are no tables for.
    log: the logger for failures of what is announced; None is silent.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        tables: Tables,
        *,
        broker: Any = None,
        timeout: float = TIMEOUT,
        missing: Callable[[Kind], Exception],
        log: Log | None = None,
    ) -> None:
        tables.check()
        self.engine = engine
        self.tables = tables
        self.broker = broker
        self.timeout = timeout
        self._missing = missing
        self._log = log
        self._of_broker: OutboxClient | None = None if broker is None else broker.client
        self._resting: list[Callable[[], Awaitable[None]]] = []
        self._closing: list[Callable[[], Awaitable[None]]] = []

    @property
    def table(self) -> Table:
        """The queues' table."""
        return self._needed(self.tables.table, "queues")

    @property
    def dlq_table(self) -> Table:
        """The dead letters' table."""
        return self._needed(self.tables.dlq_table, "dead letters")

    @property
    def log_tables(self) -> LogTables:
        """The topics' tables."""
        return self._needed(self.tables.log_tables, "topics")

    @property
    def inbox_table(self) -> Table:
        """The receipts' table."""
        return self._needed(self.tables.inbox_table, "receipts")

    def _needed(self, found: T | None, kind: Kind) -> T:
        if found is None:
            raise self._missing(kind)
        return found

    @cached_property
    def client(self) -> OutboxClient:
        """The queues' client: the broker's, or one without workers."""
        table = self.table
        if self._of_broker is not None:
            return self._of_broker
        made = OutboxClient(
            self.engine, table, dlq_table=self.tables.dlq_table, listen=False, watch=False, log=self._log
        )
        self._closing.append(made.wakeups.close)
        return made

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """The dead letters of the queues."""
        _ = self.dlq_table
        return DeadLetters(self.client)

    @cached_property
    def outbox(self) -> "Outbox":
        """The topics; nothing is read."""
        # Imported here and below, because a command that needs neither begins sooner.
        from faststream_outbox._internal.log.outbox import Outbox

        made = Outbox(self.engine, tables=self.log_tables, listen=False)
        self._resting.append(made.cleanup)
        self._closing.append(made.cleanup)
        return made

    @cached_property
    def overview(self) -> Overview:
        """The questions that change nothing; needs queues or topics."""
        if self.tables.log_tables is None:
            _ = self.table
        made = Overview(self.engine, **self.tables.keywords(), timeout=self.timeout)
        self._resting.append(made.close)
        self._closing.append(made.close)
        return made

    def doctor(self) -> "Doctor":
        """Examines the database, on connections that it closes."""
        from faststream_outbox._internal.doctor.doctor import Doctor

        return Doctor(self.engine, **self.tables.keywords(), timeout=self.timeout)

    async def pause(self, queue: str, *, create: bool = False) -> bool:
        """Pause a queue in every process; False if it was paused."""
        if self.broker is not None:
            # It knows the queues of its subscribers too.
            return bool(await self.broker.pause(queue, create=create))
        return await pause(self.client, queue, create=create)

    async def resume(self, queue: str) -> bool:
        """Resume a queue in every process; False if it was not paused."""
        if self.broker is not None:
            return bool(await self.broker.resume(queue))
        return await resume(self.client, queue)

    async def cancel_timer(self, queue: str, timer_id: str) -> bool:
        """Take a timer back; False if it is gone or runs."""
        table, wakeups = self.table, self.client.wakeups
        async with AsyncSession(self.engine) as session, session.begin():
            return await cancel_timer(session, table, queue=queue, timer_id=timer_id, wakeups=wakeups)

    async def seek(self, place: "Place", group: str, uri: str, *, create: bool = False) -> "Cursor":
        """Put a group elsewhere; where it stands then."""
        async with AsyncSession(self.engine) as session, session.begin():
            return await self.outbox.seek(session, place, group, uri, create=create)

    async def rest(self) -> None:
        """Close connections that nobody needs for now; the next question opens them again."""
        for close in reversed(self._resting):
            await close()

    async def close(self) -> None:
        """Announce what was committed, and close every connection of what was made here, the last part first."""
        for close in reversed(self._closing):
            await close()

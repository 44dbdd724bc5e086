"""All questions, on one connection of their own, each within a time limit.

Made from an engine, which may be one to a read replica, and the tables that there are. Nothing is changed, and no
question stands in front of what delivers. A question that takes too long is given up by the client and by the server,
and fails for itself with an error that says so; so does one that the role may not ask. Called by the command line, the
dashboard, and applications.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.cause import CANCELLED, has_state
from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.connections.identity import worker_id_of
from faststream_outbox._internal.connections.rights import missing_right
from faststream_outbox._internal.log.admin.groups import GroupStatus, list_groups
from faststream_outbox._internal.options import check_number, check_seconds, check_text
from faststream_outbox._internal.overview import topics
from faststream_outbox._internal.overview.message import (
    BEHIND_ALL,
    MessageStatus,
    Searched,
    dead_status,
    fetch_groups,
    fetch_letters,
    fetch_message,
    find_id,
    find_letter,
    living_status,
)
from faststream_outbox._internal.overview.processes import (
    Process,
    Rates,
    fetch_process,
    fetch_processes,
    fetch_written,
    rates_between,
)
from faststream_outbox._internal.overview.queues import QueueStatus, TimerStatus, fetch_queues, fetch_timers
from faststream_outbox._internal.overview.topics import BlockedKey, GapStatus, SlotStatus
from faststream_outbox._internal.queue.dead_letters import DeadLetter, ErrorGroup, Selection
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox._internal.schema.log_tables import LogNames, LogTables
from faststream_outbox._internal.schema.names import Names, schema_map_of
from faststream_outbox._internal.sql.overview_rows import WrittenRow
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.errors import InvalidOption, QuestionTimedOut

_PLANS = "; set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off"


class AskingConnection(DedicatedConnection):
    """A connection for questions only."""

    def __init__(self, engine: AsyncEngine, *, timeout: float) -> None:
        super().__init__(engine, timeout=timeout, role="overview", on_standby=True)

    async def _set_limits(self, driver: Any, application_name: str) -> None:
        await super()._set_limits(driver, application_name)
        if self.pooled:
            # A direct connection has it for good. A table without statistics would be read and sorted for each slice.
            self._begin += _PLANS

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """Ask one statement."""
        # First, so that a server that cannot be reached is not taken for a slow question.
        await self.open()
        try:
            return await super().fetch(statement, values)
        except TimeoutError as error:
            raise self._too_slow(statement.name) from error
        except Exception as error:
            if has_state(error, CANCELLED):
                # The server's own time limit, or an operator's `pg_cancel_backend`.
                raise self._too_slow(statement.name) from error
            missing = missing_right(error, statement)
            if missing is not None:
                raise missing from error
            raise

    @asynccontextmanager
    async def limited(self, question: str) -> AsyncGenerator[None]:
        """The statements of one question, which have its time together."""
        await self.open()
        try:
            async with asyncio.timeout(self.timeout):
                yield
        except QuestionTimedOut:
            raise
        except TimeoutError as error:
            raise self._too_slow(question) from error

    def _too_slow(self, what: str) -> QuestionTimedOut:
        return QuestionTimedOut(
            f"The question {what!r} took more than {self.timeout:g} seconds, and was given up. Give it more with "
            "Overview(…, timeout=…). If it was quick before, look for a transaction that has been open for long: the "
            "server has to pass over all that was deleted since."
        )


TIMEOUT = 5.0
LEASE_TTL_SECONDS = WorkerOptions().lease_ttl_seconds


class Overview:
    """Answers questions about the tables of one database.

    engine: of that database; a role that may read the tables is enough.
    table: the queues' table, or None.
    dlq_table: the dead letters' table, or None.
    log_tables: the topics' tables, or None.
    inbox_table: the receipts' table, or None.
    timeout: seconds that one question may take; it raises `QuestionTimedOut` after that.
    lease_ttl_seconds: of your workers; a lease that was not renewed for so long has ended.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        table: Table | None = None,
        dlq_table: Table | None = None,
        log_tables: LogTables | None = None,
        inbox_table: Table | None = None,
        timeout: float = TIMEOUT,
        lease_ttl_seconds: float = LEASE_TTL_SECONDS,
    ) -> None:
        check_seconds("timeout", timeout)
        check_seconds("lease_ttl_seconds", lease_ttl_seconds)
        Tables(table, dlq_table, log_tables, inbox_table).check()
        schema_map = schema_map_of(engine)
        self._names = None if table is None else Names.of(table, dlq_table, schema_map)
        self._log_names = None if log_tables is None else LogNames.of(log_tables, schema_map)
        self._connection = AskingConnection(engine, timeout=timeout)
        self._ttl = lease_ttl_seconds
        self._written: WrittenRow | None = None

    async def queues(self, queue: str | None = None) -> Sequence[QueueStatus]:
        """Every queue that has messages, dead letters or a pause, by name; nothing for one that has none of them.

        Up to 10,000 messages of a kind are counted for each queue and priority, fewer where there are many queues; the
        rest is estimated, or left out, and `is_estimate` says so.

        queue: only this one.
        """
        names = self._queue_names()
        async with self._connection.limited("queues"):
            return await fetch_queues(self._connection, names, queue, self._ttl)

    async def message(self, id_or_message_id: int | UUID) -> MessageStatus | None:
        """One message of a queue with everything known about it, also after its death; None if there is none.

        id_or_message_id: the id finds a message at once, and its dead letter by a search; a message_id is searched for
            in both tables, from the newest on. A search that takes too long raises `QuestionTimedOut`, and says how
            far it got.
        """
        names = self._queue_names()
        if not isinstance(id_or_message_id, UUID):
            # An id beyond every bigint is one that no message has.
            check_number("id_or_message_id", id_or_message_id, is_bounded=False)
        searched = Searched()
        try:
            async with self._connection.limited("message"):
                return await self._message(names, id_or_message_id, searched)
        except QuestionTimedOut as error:
            if not searched.rows:
                raise
            msg = (
                f"{id_or_message_id} is not among the newest {searched.rows:,} rows, and the time of the search was "
                "over. Messages are found at once by their id; give a search more time with Overview(…, timeout=…)."
            )
            raise QuestionTimedOut(msg) from error

    async def _message(self, names: Names, wanted: int | UUID, searched: Searched) -> MessageStatus | None:
        connection = self._connection
        if isinstance(wanted, int) and abs(wanted) >= BEHIND_ALL:
            return None
        id_ = wanted if isinstance(wanted, int) else await find_id(connection, names, wanted, searched)
        row = None if id_ is None else await fetch_message(connection, names, id_, self._ttl)
        if row is None:
            letter = await find_letter(connection, names, wanted, searched)
            return None if letter is None else dead_status(letter)
        holder = await fetch_process(connection, names, self._log_names, self._ttl, worker_id_of(row.acquired_token))
        return living_status(row, holder, ttl=self._ttl, is_standby=connection.is_standby)

    async def timers(self, queue: str | None = None, *, limit: int = 100) -> Sequence[TimerStatus]:
        """Timers that have not fired, the next one first.

        All of them are looked at where there are up to 10,000. Of more, those are found that lie among the 10,000
        messages of a queue and priority that have been due for longest, or that fall due next.

        queue: only of this one.
        limit: how many at most.
        """
        names = self._queue_names()
        async with self._connection.limited("timers"):
            return await fetch_timers(self._connection, names, queue, limit, self._ttl)

    async def dead_groups(self) -> Sequence[ErrorGroup]:
        """Dead letters that failed alike, by queue and error, the most first; of the newest 100,000."""
        return await fetch_groups(self._connection, self._queue_names())

    async def dead_letters(self, selection: Selection, *, limit: int = 100, after: int = 0) -> Sequence[DeadLetter]:
        """Dead letters by id.

        selection: which.
        limit: how many at most.
        after: the last id of the page before.
        """
        return await fetch_letters(self._connection, self._queue_names(), selection, limit, after)

    async def processes(self) -> Sequence[Process]:
        """Everybody of ours who is connected to this database, by host and pid."""
        async with self._connection.limited("processes"):
            return await fetch_processes(self._connection, self._names, self._log_names, self._ttl)

    async def rates(self) -> Rates:
        """Rows written and deleted per second since this was asked before; see `Rates` for what is counted."""
        before = self._written
        self._written = await fetch_written(self._connection, self._queue_names())
        return rates_between(before, self._written)

    async def groups(self, group: str | None = None) -> Sequence[GroupStatus]:
        """Groups of topics: lag in messages and seconds, members, parked, deferred."""
        if group is not None:
            check_text("group", group)
        if self._log_names is None:
            return []
        return await list_groups(self._connection, self._log_names, group)

    async def slots(self, group: str, uri: str = "") -> Sequence[SlotStatus]:
        """Where each span of slots of a group stands and who reads it."""
        if self._log_names is None:
            msg = "Groups are of topics: pass log_tables=make_log_tables(metadata) to Overview."
            raise InvalidOption(msg)
        found = await topics.slots(self._connection, self._log_names, group, uri)
        return topics.with_owners(found, await self.processes())

    async def blocked_keys(self, group: str | None = None, *, limit: int = 100) -> Sequence[BlockedKey]:
        """Keys whose messages wait for one that failed, those with the most first."""
        if self._log_names is None:
            return []
        return await topics.blocked_keys(self._connection, self._log_names, group, limit)

    async def gaps(self, *, limit: int = 100) -> Sequence[GapStatus]:
        """Positions whose transactions have not ended, the oldest first, with whose transaction it is."""
        if self._log_names is None:
            return []
        return await topics.gaps(self._connection, self._log_names, limit)

    def _queue_names(self) -> Names:
        if self._names is None:
            msg = "This overview knows no queues: pass table=make_outbox_table(metadata)."
            raise InvalidOption(msg)
        return self._names

    async def close(self) -> None:
        """Close the connection; the next question would open another."""
        await self._connection.close()

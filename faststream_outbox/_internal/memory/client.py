"""The queue engine's client on tables in memory, and the database that clients of one test share.

Brokers of one table share its rows, dead letters and wake-ups, those of one log its topics, and all of them the clock.
The connections of the client lead to the tables. Made by the test broker, whose `fake_client` it is; applications look
at the tables through it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import uuid4

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.connections.caller import AnySession, Rows
from faststream_outbox._internal.connections.dedicated import STATEMENT_TIMEOUT, Row
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.log.admin.parked import DeferredMessage
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.log.options import Start
from faststream_outbox._internal.memory.log import MemoryLog
from faststream_outbox._internal.memory.queues import MemoryQueues
from faststream_outbox._internal.memory.tables import MemoryClock, MemoryRow, MemoryTables
from faststream_outbox._internal.memory.transaction import Opened, handler_session
from faststream_outbox._internal.outcomes.failure import Renderer
from faststream_outbox._internal.queue import clock
from faststream_outbox._internal.queue.claim import Claim
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.worker import Worker
from faststream_outbox._internal.schema.given import check_tables
from faststream_outbox._internal.schema.names import quoted_name
from faststream_outbox._internal.sql.log_rows import ReadMessage
from faststream_outbox._internal.sql.statements import Statement, column
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox._internal.wakeup.wakeups import Wakeups
from faststream_outbox.errors import InvalidOptionType, LeaseLost


class MemoryConnection:
    """Runs statements on tables in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self.timeout = STATEMENT_TIMEOUT
        self.answered_at = float("-inf")

    @property
    def is_open(self) -> bool:
        """There is nothing to connect to."""
        return True

    async def open(self) -> None:
        """It is."""

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """The rows that the statement returns."""
        # Others may run, as they do while a server answers.
        await asyncio.sleep(0)
        return self._tables.answer(statement.name, values)

    async def close(self) -> None:
        """Nothing is open."""


class MemoryDatabase:
    """What brokers under one test share."""

    def __init__(self) -> None:
        self.clock: MemoryClock = MemoryClock()
        self.clients: list[FakeOutboxClient] = []
        self.wakeups: dict[MemoryQueues, Wakeups] = {}
        self._tables: dict[str, MemoryQueues] = {}
        self._logs: dict[str, MemoryLog] = {}

    def tables(self, table: Table) -> MemoryQueues:
        """The rows of a table, and its dead letters."""
        return self._tables.setdefault(quoted_name(table), MemoryQueues(self.clock))

    def log(self, name: str) -> MemoryLog:
        """The messages of a log's topics."""
        return self._logs.setdefault(name, MemoryLog(self.clock))


class FakeOutboxClient(OutboxClient):
    """`rows`, `dlq_rows`, `messages` and `parked` show the tables; `feed`, `advance` and `seek` change them."""

    def __init__(
        self,
        table: Table,
        dlq_table: Table | None = None,
        *,
        log_table: Table | None = None,
        database: MemoryDatabase | None = None,
        events: Events | None = None,
        last_exception_renderer: Renderer | None = None,
    ) -> None:
        check_tables(table, dlq_table)
        given: object = log_table
        if given is not None and not isinstance(given, Table):
            msg = f"log_table must be the Table of a log, make_log_tables(…).log, not a {type(given).__name__}."
            raise InvalidOptionType(msg)
        self.database: MemoryDatabase = database or MemoryDatabase()
        self.tables: MemoryQueues = self.database.tables(table)
        self.log: MemoryLog = self.database.log("" if log_table is None else quoted_name(log_table))
        self.renderer = last_exception_renderer
        self.committed: list[MemoryRow] = []
        """What transactional handlers have published to queues, and nobody has handled yet."""
        self.committed_to_topics: list[ReadMessage] = []
        """The same of topics."""
        self.freed: Callable[[MemoryQueues], Awaitable[None]] | None = None
        """Handles messages that an operator has let go, where no loops do."""
        self.topics_changed: Callable[[], None] = lambda: None
        """Wakes whoever reads topics, where loops do."""
        super().__init__(
            cast("Any", None),
            table,
            dlq_table=dlq_table,
            notify="off",
            listen=False,
            watch=False,
            log=None,
            events=events,
            last_exception_renderer=last_exception_renderer,
            connections=lambda: MemoryConnection(self.tables),
        )
        self.wakeups: Wakeups = self.database.wakeups.setdefault(self.tables, self.wakeups)
        self.database.clients.append(self)

    @property
    def rows(self) -> list[MemoryRow]:
        """The outbox."""
        return self.tables.rows

    @property
    def messages(self) -> list[OutboxMessage]:
        """What was published to topics."""
        return self.log.messages

    @property
    def dlq_rows(self) -> list[dict[str, Any]]:
        """The dead letters."""
        return self.tables.dlq_rows

    @property
    def parked(self) -> list[DeferredMessage]:
        """Messages of topics that groups have parked."""
        return [each for place in sorted(self.log.groups) for each in self.log.groups[place].parked()]

    def feed(
        self,
        queue: str,
        payload: bytes,
        *,
        headers: Mapping[str, Any] | None = None,
        next_attempt_at: datetime | None = None,
        timer_id: str | None = None,
        key: str | None = None,
        priority: int = 0,
    ) -> int | None:
        """Put a row into the outbox, as another producer would; None where its timer_id is taken."""
        values = {
            "queues": [queue],
            "payloads": [payload],
            "headers": [None if headers is None else json.dumps(dict(headers))],
            "due_ats": [next_attempt_at],
            "due_ins": [0.0],
            "keys": [key],
            "priorities": [priority],
            "message_ids": [None],
            "timer_ids": [timer_id],
            "conflicts": ["ignore"],
        }
        written = self.tables.answer("publish_timers", values)
        self.wakeups.tell(Hint(queue))
        return next((int(row_id) for row_id, _, _ in written), None)

    def advance(self, by: timedelta | float) -> None:
        """Let time pass for every broker of the test; leases of messages in flight are renewed meanwhile."""
        self.database.clock.advance(by if isinstance(by, timedelta) else timedelta(seconds=by))
        for client in self.database.clients:
            client.renew()
        for wakeups in self.database.wakeups.values():
            wakeups.tell(Hint(None, scan=True))
        self.topics_changed()

    def renew(self) -> None:
        """Let the leases of messages in flight begin anew."""
        held = list(self._claims())
        ids, tokens = [claim.id for claim in held], [claim.acquired_token for claim in held]
        # A jump of the clock takes no time: nobody could have taken them.
        for_ever = [timedelta(days=3650).total_seconds()] * len(held)
        self.tables.answer("renew", {"ids": ids, "tokens": tokens, "ttls": for_ever})

    async def seek(self, to: Start, group: str, topic: str) -> None:
        """Let a group read a topic from a place on, as `Outbox.seek` does: "earliest", "latest" or a time."""
        self.log.group(group, topic).seek(to)
        self.topics_changed()

    def lease(self, row: MemoryRow, worker: Worker) -> Claim:
        """Claim a row, due or not."""
        token = uuid4()
        self.tables.lease(row, token)
        return Claim(row.claimed(self.tables.now()), token, worker, clock.now())

    async def control(self, name: str, values: Mapping[str, Any], *, file: str = "control") -> Rows:
        """Answer an operator."""
        rows = self.tables.answer(name, values)
        if name in ("resume", "replay") and self.freed is not None:
            await self.freed(self.tables)
        return rows

    def open_session(self) -> AsyncSession:
        """A session that does nothing, for transactional handlers."""
        return handler_session()

    async def lock_within(self, session: AnySession, *claims: Claim) -> None:
        """Refuse messages whose lease is gone."""
        held = column(self.tables.answer("lock", _leases(claims)))
        _refuse_lost([claim for claim in claims if claim.id not in held])

    async def begin_within(self, session: AsyncSession, *claims: Claim) -> None:
        """Begin a transaction that does nothing."""
        await session.begin()

    async def settle_within(self, session: AnySession, *claims: Claim) -> None:
        """Finish messages with the handler's transaction."""
        opened = Opened(session, is_hidden=True)
        if opened.transaction is None:
            rows = self.tables.answer("settle_within", _leases(claims))
        else:
            rows = opened.transaction.answer(self.tables, "settle_within", _leases(claims), opened.scopes)
        ended = column(rows)
        _refuse_lost([claim for claim in claims if claim.id not in ended])
        for claim in claims:
            claim.is_handed_over = True


def _leases(claims: tuple[Claim, ...]) -> dict[str, list[Any]]:
    return {"ids": [claim.id for claim in claims], "tokens": [claim.acquired_token for claim in claims]}


def _refuse_lost(claims: list[Claim]) -> None:
    for claim in claims:
        msg = f"The lease of message {claim.id} is gone."
        raise LeaseLost(msg)

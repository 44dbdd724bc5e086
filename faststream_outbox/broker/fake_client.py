"""The client of the test broker: the engine's own, on tables in memory."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, cast
from unittest.mock import AsyncMock
from uuid import uuid4

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.broker.memory import MemoryRow, MemoryWire
from faststream_outbox.broker.memory_claims import ClaimableTables
from faststream_outbox.broker.memory_log import MemoryLog
from faststream_outbox.errors import LeaseLost
from faststream_outbox.log.message import OutboxMessage
from faststream_outbox.queue import clock
from faststream_outbox.queue.claim import Claim
from faststream_outbox.queue.client import OutboxClient
from faststream_outbox.queue.worker import Worker
from faststream_outbox.sql.through import AnySession, Rows
from faststream_outbox.sql.wire import Row
from faststream_outbox.wakeup.hint import Hint


class FakeOutboxClient(OutboxClient):
    """`rows`, `dlq_rows` and `messages` show the tables; `feed` and `advance` change them."""

    is_in_memory = True

    def __init__(self, table: Table, dlq_table: Table | None = None) -> None:
        self.tables = ClaimableTables(keeps_dead=dlq_table is not None)
        self.log = MemoryLog()
        self.committed_to_topics: list[Row] = []
        self.committed: list[MemoryRow] = []
        """What transactional handlers have published and nobody has handled yet."""
        super().__init__(
            cast("Any", None),
            table,
            dlq_table=dlq_table,
            notify="off",
            listen=False,
            watch=False,
            log=None,
            wires=lambda: MemoryWire(self.tables),
        )

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
        return int(written[0][0]) if written else None

    def advance(self, by: timedelta | float) -> None:
        """Let time pass; leases of messages in hand are renewed meanwhile."""
        self.tables.advance(by if isinstance(by, timedelta) else timedelta(seconds=by))
        held = list(self._claims())
        ids, tokens = [claim.id for claim in held], [claim.acquired_token for claim in held]
        self.tables.answer("renew", {"ids": ids, "tokens": tokens})
        self.wakeups.tell(Hint(None, scan=True))

    def lease(self, row: MemoryRow, worker: Worker) -> Claim:
        """Claim a row, due or not."""
        token = uuid4()
        self.tables.lease(row, token)
        return Claim(row.claimed(self.tables.now()), token, worker, clock.now())

    async def control(self, name: str, values: dict[str, Any]) -> Rows:
        """Answer an operator."""
        return self.tables.answer(name, values)

    def open_session(self) -> AsyncSession:
        """A session that does nothing, for transactional handlers."""
        session = AsyncMock(spec=AsyncSession)
        session.in_transaction.return_value = True
        session.__aenter__.return_value = session
        session.begin = AsyncMock()
        pending: list[MemoryRow] = []
        to_topics: list[Row] = []

        async def commit() -> None:
            self.tables.rows.extend(pending)
            self.committed.extend(pending)
            for queue in {row.queue for row in pending}:
                self.wakeups.tell(Hint(queue))
            pending.clear()
            self.log.keep(to_topics)
            self.committed_to_topics.extend(to_topics)
            to_topics.clear()

        async def rollback() -> None:
            pending.clear()
            to_topics.clear()

        session.outbox_pending = pending
        session.topics_pending = to_topics
        session.commit, session.rollback, session.close = commit, rollback, rollback
        return cast("AsyncSession", session)

    async def lock_within(self, session: AnySession, *claims: Claim) -> None:
        """Refuse messages whose lease is gone."""
        values = {"ids": [claim.id for claim in claims], "tokens": [claim.acquired_token for claim in claims]}
        held = {row[0] for row in self.tables.answer("lock", values)}
        for claim in claims:
            if claim.id not in held:
                msg = f"The lease of message {claim.id} is gone."
                raise LeaseLost(msg)

    async def begin_within(self, session: AsyncSession, *claims: Claim) -> None:
        """Begin a transaction that does nothing."""
        await session.begin()

    async def settle_within(self, session: AnySession, *claims: Claim) -> None:
        """Finish messages with the handler's transaction."""
        values = {"ids": [claim.id for claim in claims], "tokens": [claim.acquired_token for claim in claims]}
        ended = {row[0] for row in self.tables.answer("settle_done", values)}
        for claim in claims:
            if claim.id not in ended:
                msg = f"The lease of message {claim.id} is gone."
                raise LeaseLost(msg)
            claim.is_handed_over = True

"""Tables for a dashboard, filled with one of everything under names that a test chooses."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import MetaData, Table, func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import NoRetry, make_dlq_table, make_outbox_table
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.queue.client import OutboxClient
from faststream_outbox._internal.queue.pause import paused
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.dashboard import Dashboard, make_dashboard
from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables
from faststream_outbox.publish import publish


@dataclass(frozen=True, slots=True)
class Words:
    """What a stranger can write into the tables."""

    queue: str = "orders"
    key: str = "customer-7"
    header: str = "shop"
    body: str = "a chair"
    timer_id: str = "reminder-7"
    error_type: str = "CardDeclined"
    error: str = "insufficient funds"
    traceback: str = "Traceback (most recent call last):"
    group: str = "billing"
    uri: str = "invoices"


@dataclass(slots=True)
class Place:
    """One database with all tables, and what was put into them."""

    engine: AsyncEngine
    table: Table
    dlq_table: Table
    log_tables: LogTables
    words: Words = field(default_factory=Words)
    message_id: int = 0
    letter_id: int = 0
    parked_position: int = 0

    @classmethod
    def described(cls, engine: AsyncEngine) -> "Place":
        """Tables that do not exist yet."""
        metadata = MetaData()
        tables = make_outbox_table(metadata), make_dlq_table(metadata), make_log_tables(metadata, "outbox_log")
        return cls(engine, *tables)

    def dashboard(self, **options: Any) -> Dashboard:
        """A dashboard on all tables that lets everybody in as ada."""
        tables = {"table": self.table, "dlq_table": self.dlq_table, "log_tables": self.log_tables}
        given: dict[str, Any] = {"auth": lambda _: "ada"} | tables | options
        return make_dashboard(given.pop("source", self.engine), **given)

    def outbox(self) -> Outbox:
        """The log, as an application has it."""
        return Outbox(self.engine, tables=self.log_tables, listen=False, retry_strategy=NoRetry(), on_parked="hold_key")

    async def fill(self, words: Words | None = None) -> None:
        """One of everything: ready, leased, scheduled, dead; parked and waiting."""
        self.words = said = words or self.words
        what: dict[str, Any] = {"queue": said.queue, "body": f'{{"item": "{said.body}"}}'.encode()}
        plain = what | {"headers": {"source": said.header, said.header: "x"}}
        timer = Envelope(**what, timer_id=said.timer_id, activate_in=timedelta(hours=1))
        async with AsyncSession(self.engine) as session, session.begin():
            first, *_ = await publish(session, self.table, Envelope(**plain, key=said.key), Envelope(**plain))
            await publish(session, self.table, timer)
            self.message_id = first
            leased = {"acquired_token": uuid4(), "acquired_at": func.now()}
            await session.execute(update(self.table).where(self.table.c.id == first).values(leased))
            self.letter_id = await self._die(session)
        await self._park()

    async def _die(self, session: AsyncSession, **changed: Any) -> int:
        said = self.words
        now = datetime.now(UTC)
        values: dict[str, Any] = {
            "original_id": 900_000 + int(now.timestamp() * 1000) % 90_000,
            "message_id": uuid4(),
            "queue": said.queue,
            "payload": f'{{"item": "{said.body}", "card_number": "4242"}}'.encode(),
            "headers": {"source": said.header},
            "key": said.key,
            "attempts_count": 3,
            "deliveries_count": 3,
            "created_at": now - timedelta(hours=1),
            "failure_reason": "retry_terminal",
            "error_type": said.error_type,
            "error_message": said.error,
            "traceback": said.traceback,
        }
        row = await session.execute(insert(self.dlq_table).values(values | changed).returning(self.dlq_table.c.id))
        return int(row.scalar_one())

    async def die(self, count: int, **changed: Any) -> None:
        async with AsyncSession(self.engine) as session, session.begin():
            for number in range(count):
                await self._die(session, **({"original_id": 800_000 + number} | changed))

    async def _park(self) -> None:
        said, outbox = self.words, self.outbox()

        async def refuse(message: OutboxMessage) -> None:
            raise ValueError(said.error)

        try:
            async with AsyncSession(self.engine) as session, session.begin():
                what = f"{said.uri}/1", {"item": said.body}, {"source": said.header}
                await outbox.publish(session, OutboxMessage(*what), OutboxMessage(*what))
            while await outbox.dispatch(refuse, said.group, said.uri):
                pass
            (parked,) = await outbox.parked.list(said.group)
            self.parked_position = parked.position
        finally:
            await outbox.cleanup()

    async def count(self, table: Table, where: str = "true") -> int:
        async with self.engine.connect() as connection:
            counted = select(func.count()).select_from(table).where(text(where))
            return int((await connection.execute(counted)).scalar_one())

    async def letters(self) -> list[tuple[bytes, dict[str, Any]]]:
        """Bodies and headers of the dead letters."""
        async with self.engine.connect() as connection:
            columns = self.dlq_table.c
            rows = await connection.execute(select(columns.payload, columns.headers).order_by(columns.id))
            return [(bytes(row.payload), dict(row.headers)) for row in rows]

    async def paused(self) -> list[str]:
        return await paused(OutboxClient(self.engine, self.table, listen=False, watch=False))

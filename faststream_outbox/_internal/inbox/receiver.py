"""Receiving messages once, without FastStream: receipts and effects in one commit, and the retention of receipts.

Retention runs by itself once a message was received, in one process of the fleet at a time. `Inbox` adds what
FastStream's brokers need.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.event_log import write_event_log
from faststream_outbox._internal.inbox.receipt import (
    KEEP,
    Key,
    OfMessage,
    OnConcurrent,
    Receipt,
    check_engine,
    check_function,
    checked_consumer,
    checked_keep,
)
from faststream_outbox._internal.inbox.receipts import Upkeep
from faststream_outbox._internal.inbox.receiving import Receiving
from faststream_outbox._internal.options import check_choice, checked_flag
from faststream_outbox._internal.schema.check import validate_inbox_schema
from faststream_outbox._internal.schema.given import check_inbox
from faststream_outbox._internal.schema.names import Names, schema_map_of
from faststream_outbox._internal.service import Service
from faststream_outbox._internal.sql.statements import Statements, statements

logger = logging.getLogger("faststream_outbox")


class Receiver:
    """Lets each message take effect once."""

    def __init__(
        self,
        engine: AsyncEngine,
        table: Table,
        *,
        consumer: str,
        message_id: OfMessage | None = None,
        source: OfMessage | None = None,
        on_concurrent: OnConcurrent = "wait",
        keep_response: bool = False,
        keep: timedelta | None = KEEP,
    ) -> None:
        """Describe the inbox of a consumer; nothing is connected yet.

        engine: of the database that handlers write to.
        table: as `make_inbox_table` describes it.
        consumer: who handles the messages; another consumer of the same messages handles them for itself.
        message_id: what a message is known by, as a function of it, where it carries no id or a wrong one.
        source: where a message comes from, as a function of it; by default the broker's channel.
        on_concurrent: what becomes of a message that comes while its first delivery is being handled: it waits
            ("wait"), or goes back to its broker and comes again ("retry").
        keep_response: keep what handlers return, so that a request that comes again gets the same answer.
        keep: how long receipts stay; longer than a broker may deliver a message again. None is for ever.
        """
        check_engine(engine, AsyncEngine, "for a sync Engine there is SyncInbox")
        check_inbox(table)
        check_choice("on_concurrent", on_concurrent, ("wait", "retry"))
        check_function("message_id", message_id)
        check_function("source", source)
        self.engine = engine
        self.table = table
        self.consumer: str = checked_consumer(consumer)
        self.on_concurrent: OnConcurrent = on_concurrent
        self.keep_response: bool = checked_flag("keep_response", keep_response)
        self.message_id = message_id
        self.source = source
        self.names: Names = Names.of(table, schema_map=schema_map_of(engine))
        self.sql: Statements = statements("inbox", self.names)
        self.events: Events = Events()
        write_event_log(self.events, logger)
        self._keep = checked_keep(keep)
        self._upkeep: Upkeep | None = None
        self._service: Service | None = None
        if self._keep is not None:
            self._upkeep = Upkeep(self.names, self.events, self.connection(), self._keep)
            self._service = Service("inbox janitor", self._upkeep.janitor.run, self._crashed)

    def connection(self) -> DedicatedConnection:
        """A connection of our own, by the engine's recipe."""
        return DedicatedConnection(self.engine, role="clean")

    def open_session(self) -> AsyncSession:
        """A session for one message."""
        return AsyncSession(self.engine, expire_on_commit=False, close_resets_only=False)

    def _crashed(self, name: str, error: BaseException) -> None:
        self.events.emit(events.LoopCrashed(name, error))

    @asynccontextmanager
    async def receive(self, message_id: object, *, source: str) -> AsyncGenerator[Receipt]:
        """Receive a message without FastStream: the block's writes through `receipt.session` commit with the receipt.

        message_id: what every delivery of the message has, and no other message of the source.
        source: where it comes from.

            async with inbox.receive(delivery.id, source="orders") as receipt:
                if receipt.is_new:
                    receipt.session.add(Invoice(...))
            await delivery.ack()
        """
        receiving = await self.begin(Key.of(self.consumer, source, message_id), reads_answer=True)
        if receiving.is_over:
            yield Receipt(is_new=False, answer=receiving.answer)
            return
        receipt = Receipt(is_new=True, _session=receiving.session)
        try:
            yield receipt
        except BaseException:
            await receiving.rollback()
            raise
        await receiving.commit(receipt.answer)

    async def begin(self, key: Key, *, reads_answer: bool) -> Receiving:
        """Begin to receive a message; it `is_over` where it was received before."""
        self.start()
        receiving = Receiving(self, key)
        if not await receiving.begin(reads_answer=reads_answer):
            receiving.is_over = True
            self.events.emit(events.DuplicateSkipped(key.consumer, key.source, key.message_id))
        return receiving

    def replayed(self, key: Key) -> None:
        """A request got its answer again."""
        self.events.emit(events.ResponseReplayed(key.consumer, key.source, key.message_id))

    async def validate_schema(self, *, check_rights: bool = False) -> None:
        """Raise `SchemaMismatch` if the table is not as needed; its text can be pasted into psql from line 2 on."""
        await validate_inbox_schema(self.engine, self.table, check_rights=check_rights)

    def start(self) -> None:
        """Begin to delete old receipts, every few minutes; the first message does it too."""
        if self._service is not None:
            self._service.start()

    async def stop(self) -> None:
        """End what `start` began; the next message would begin it again."""
        if self._service is not None:
            await self._service.stop()

    async def clean(self) -> None:
        """Delete receipts that are old enough now; for who has no process that runs on."""
        if self._upkeep is not None:
            await self._upkeep.clean_once()

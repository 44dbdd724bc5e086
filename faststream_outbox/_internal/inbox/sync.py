"""The inbox for code without an event loop: `with inbox.receive(message_id, source=…) as receipt`.

The same table, the same receipts and the same promises as `Inbox`, with a sync Engine and its Sessions; threads may
share one. Made by applications.
"""

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import Engine, Table
from sqlalchemy.orm import Session

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.caller import caller_connection_sync, end, run_sync
from faststream_outbox._internal.connections.cause import is_answered, is_conflict
from faststream_outbox._internal.connections.transactions import BEGINNINGS, LONGEST_PAUSE
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.event_log import write_event_log
from faststream_outbox._internal.inbox.receipt import (
    KEEP,
    Answer,
    Guard,
    Key,
    OnConcurrent,
    SyncReceipt,
    check_engine,
    checked_consumer,
    checked_keep,
)
from faststream_outbox._internal.inbox.receipts import cleaned_slice, slice_values
from faststream_outbox._internal.inbox.receiving import confirming, receiving
from faststream_outbox._internal.options import check_choice
from faststream_outbox._internal.schema.given import check_inbox
from faststream_outbox._internal.service import pause_after

logger = logging.getLogger("faststream_outbox")


class SyncInbox:
    """Lets each message take effect once."""

    def __init__(
        self,
        engine: Engine,
        table: Table,
        *,
        consumer: str,
        on_concurrent: OnConcurrent = "wait",
        keep: timedelta | None = KEEP,
    ) -> None:
        """Describe the inbox of a consumer; nothing is connected yet.

        engine: of the database that effects are written to, on psycopg or psycopg2.
        table: as `make_inbox_table` describes it.
        consumer: who handles the messages; another consumer of the same messages handles them for itself.
        on_concurrent: whether a message that comes while its first delivery is being handled waits for that ("wait"),
            or raises `BeingHandled` at once ("retry").
        keep: how long receipts stay; they are deleted by `clean`, or by the processes that have an `Inbox`.
        """
        check_engine(engine, Engine, "for an AsyncEngine there is Inbox")
        check_inbox(table)
        check_choice("on_concurrent", on_concurrent, ("wait", "retry"))
        self.engine = engine
        self.table = table
        self.consumer: str = checked_consumer(consumer)
        self.on_concurrent: OnConcurrent = on_concurrent
        self.events: Events = Events()
        write_event_log(self.events, logger)
        self._keep = checked_keep(keep)

    @contextmanager
    def receive(self, message_id: object, *, source: str) -> Generator[SyncReceipt]:
        """Receive a message: the block's writes through `receipt.session` commit with the receipt.

        message_id: what every delivery of the message has, and no other message of the source.
        source: where it comes from.
        """
        key = Key.of(self.consumer, source, message_id)
        receiving = _Receiving(self, key)
        session = receiving.begin()
        if session is None:
            self.events.emit(events.DuplicateSkipped(key.consumer, key.source, key.message_id))
            yield SyncReceipt(is_new=False, answer=receiving.answer)
            return
        guard = Guard(session)
        receipt = SyncReceipt(is_new=True, _session=session)
        try:
            try:
                yield receipt
                guard.check()
                session.flush()
                receiving.confirm(session, receipt.answer)
            finally:
                guard.release()
                end(session)
            receiving.commit(session)
        finally:
            session.close()
        self.events.emit(events.Received(key.consumer, key.source, key.message_id))

    def clean(self) -> None:
        """Delete receipts that are old enough, slice by slice."""
        if self._keep is None:
            return
        cleaned, after = 0, None
        while True:
            with self.engine.begin() as connection:
                opened = caller_connection_sync(connection, self.table)
                rows = opened.fetch_sync(opened.sql("inbox", "clean"), slice_values(self._keep, after))
            gone, after = cleaned_slice(rows)
            cleaned += gone
            if after is None:
                break
        if cleaned:
            self.events.emit(events.ReceiptsCleaned(opened.names.table, cleaned))


class _Receiving:
    """From the receipt to the commit of one message."""

    def __init__(self, inbox: SyncInbox, key: Key) -> None:
        self.answer: Answer | None = None
        self._inbox = inbox
        self._key = key
        self._values: dict[str, Any] = {}

    def begin(self) -> Session | None:
        """Write the receipt in a new transaction; None where there is one already."""
        for left in reversed(range(BEGINNINGS)):
            session = Session(self._inbox.engine, expire_on_commit=False, close_resets_only=False)
            try:
                is_new = self._receive(session)
            except BaseException as error:
                session.close()
                if left and is_conflict(error):
                    continue
                raise
            if is_new:
                return session
            session.close()
            return None
        raise AssertionError

    def _receive(self, session: Session) -> bool:
        session.begin()
        opened = caller_connection_sync(session, self._inbox.table)
        steps = receiving(opened, self._key, self._inbox.on_concurrent, self._inbox.events.emit, reads_answer=True)
        xid, self.answer = run_sync(opened, steps)
        self._values = {**self._key.values(opened.names.table), "xid": xid}
        return xid is not None

    def confirm(self, session: Session, answer: Answer | None) -> None:
        """Make sure that the receipt stands, and that COMMIT will be one."""
        opened = caller_connection_sync(session, self._inbox.table)
        run_sync(opened, confirming(opened, self._values, answer))

    def commit(self, session: Session) -> None:
        """Commit; raises only if that has not come about."""
        try:
            session.commit()
        except Exception as error:
            if is_answered(error):
                session.rollback()
            else:
                session.invalidate()
            if not self._is_there(error):
                raise

    def _is_there(self, error: BaseException) -> bool:
        """Ask the server, on another connection, until it knows what became of the transaction."""
        tries = 0
        while True:
            tries += 1
            self._inbox.events.emit(events.StatementFailed("inbox", error))
            try:
                with self._inbox.engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
                    opened = caller_connection_sync(connection, self._inbox.table)
                    if opened.fetch_sync(opened.sql("inbox", "try_turn"), self._values):
                        return bool(opened.fetch_sync(opened.sql("inbox", "written_by"), self._values))
            except Exception as problem:  # noqa: BLE001 - reported, and asked again: nothing may go on before it is known
                error = problem
            time.sleep(min(LONGEST_PAUSE, pause_after(tries)))

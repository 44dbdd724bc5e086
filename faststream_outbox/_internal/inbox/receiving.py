"""One delivery of one message: its turn, its receipt, and the commit of its effects.

The receipt is the first thing that the transaction writes. Where another transaction is about the same message, this
one waits for its end or gives up, before anything has been done; the primary key decides, and the lock only saves
everybody from finding out late. A commit whose answer was lost is found out about. Used by `receiver`; what is asked
on the way is the same without an event loop, for `sync`.
"""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.caller import CallerConnection, Steps, caller_connection, end, run
from faststream_outbox._internal.connections.cause import FAILED_TRANSACTION, has_state, is_conflict
from faststream_outbox._internal.connections.transactions import BEGINNINGS, Fate, commit
from faststream_outbox._internal.inbox.receipt import BROKEN, ROLLED_BACK, Answer, Guard, Key, OnConcurrent
from faststream_outbox._internal.service import unbroken
from faststream_outbox._internal.sql.inbox_rows import Kept, Turn
from faststream_outbox._internal.sql.statements import column, named
from faststream_outbox.errors import BeingHandled, InvalidOption, TransactionEnded

if TYPE_CHECKING:
    from faststream_outbox._internal.inbox.receiver import Receiver


AUTOCOMMIT = (
    "The engine commits each statement by itself (AUTOCOMMIT), so that a receipt and a handler's writes would not be "
    "one transaction. Give the inbox an engine with another isolation level: engine.execution_options(isolation_level="
    "'READ COMMITTED')."
)


Emit = Callable[[events.Event], None]


def receiving(
    opened: CallerConnection, key: Key, on_concurrent: OnConcurrent, emit: Emit, *, reads_answer: bool
) -> Steps[tuple[str | None, Answer | None]]:
    """Write the receipt: the transaction that wrote it; None, and perhaps the answer, where there was one before."""
    if opened.is_autocommit:
        raise InvalidOption(AUTOCOMMIT)
    values = key.values(opened.names.table)
    receive = opened.sql("inbox", "receive"), values
    turn = named(Turn, (yield receive))[0]
    if not turn.is_ours:
        if on_concurrent == "retry":
            emit(events.DeliveryHeldUp(key.consumer, key.source, key.message_id, None))
            msg = (
                f"Message {key.message_id!r} of {key.source!r} is being handled by another delivery: let it come again."
            )
            raise BeingHandled(msg)
        began = monotonic()
        yield opened.sql("inbox", "wait_turn"), values
        emit(events.DeliveryHeldUp(key.consumer, key.source, key.message_id, monotonic() - began))
        turn = named(Turn, (yield receive))[0]
    if turn.xid is not None or not reads_answer:
        return turn.xid, None
    kept = named(Kept, (yield opened.sql("inbox", "kept_response"), values))
    return None, Answer.read(kept[0]) if kept else None


def confirming(opened: CallerConnection, values: Mapping[str, Any], answer: Answer | None) -> Steps[None]:
    """Make sure that the receipt stands, and that COMMIT will be one: after a failed statement it is a rollback."""
    name, more = ("written_by", {}) if answer is None else ("keep_response", answer.values())
    try:
        rows = yield opened.sql("inbox", name), {**values, **more}
    except Exception as error:
        if has_state(error, FAILED_TRANSACTION):
            raise TransactionEnded(BROKEN) from error
        raise
    if column(rows) != [values["xid"]]:
        raise TransactionEnded(ROLLED_BACK)


class Receiving:
    """From the receipt to the commit."""

    def __init__(self, inbox: "Receiver", key: Key) -> None:
        self.key = key
        self.answer: Answer | None = None
        """What the first delivery was answered, where that is kept."""
        self.is_over = False
        self.is_committed = False
        self._inbox = inbox
        self._values = key.values(inbox.names.table)
        self._session: AsyncSession | None = None
        self._guard: Guard | None = None
        self._xid: str | None = None
        self._is_anothers = False

    @property
    def session(self) -> AsyncSession:
        """The session of a message that is new."""
        assert self._session is not None
        return self._session

    async def begin(self, *, reads_answer: bool) -> bool:
        """Write the receipt in a new transaction; False, and no transaction, where there is one already."""
        for left in reversed(range(BEGINNINGS)):
            session = self._inbox.open_session()
            try:
                is_new = await self._receive(session, reads_answer=reads_answer)
            except BaseException as error:
                await unbroken(self._discard(session))
                # Above READ COMMITTED, a receipt that was committed meanwhile is a conflict: begin again, and see it.
                if left and is_conflict(error):
                    continue
                raise
            if is_new:
                self._session, self._guard = session, Guard(session.sync_session)
            else:
                await unbroken(self._discard(session))
            return is_new
        raise AssertionError

    async def _receive(self, session: AsyncSession, *, reads_answer: bool) -> bool:
        await session.begin()
        opened = await caller_connection(session, self._inbox.table)
        steps = receiving(
            opened, self.key, self._inbox.on_concurrent, self._inbox.events.emit, reads_answer=reads_answer
        )
        self._xid, self.answer = await run(opened, steps)
        return self._xid is not None

    async def commit(self, answer: Answer | None = None) -> None:
        """Commit the effects with the receipt and the answer; raises only if that has not come about."""
        session, guard = self.session, self._guard
        assert guard is not None
        try:
            guard.check()
            await session.flush()
            await self._confirm(session, answer)
        except BaseException:
            await self.rollback()
            raise
        guard.release()
        end(session)
        self.is_over = True
        try:
            await unbroken(commit(session, self._fate, self._tell))
        finally:
            await unbroken(self._discard(session))
        self.is_committed = True
        kind = events.DuplicateSkipped if self._is_anothers else events.Received
        if not self._is_anothers:
            self.answer = answer
        self._inbox.events.emit(kind(self.key.consumer, self.key.source, self.key.message_id))

    async def _confirm(self, session: AsyncSession, answer: Answer | None) -> None:
        opened = await caller_connection(session, self._inbox.table)
        await run(opened, confirming(opened, {**self._values, "xid": self._xid}, answer))

    async def rollback(self) -> None:
        """Leave nothing behind."""
        if self.is_over or self._session is None:
            return
        self.is_over = True
        if self._guard is not None:
            self._guard.release()
        end(self._session)
        await unbroken(self._discard(self._session))

    async def _fate(self) -> Fate:
        connection = self._inbox.connection()
        sql = self._inbox.sql
        try:
            # Two statements: what the first waited for must be visible to the second.
            names = ("try_turn", "written_by", "kept_response")
            results = await connection.fetch_each([(sql[name], self._values) for name in names])
        finally:
            await connection.close()
        if not results[0]:
            return Fate.OPEN
        if not results[1]:
            return Fate.ROLLED_BACK
        if column(results[1]) != [self._xid]:
            # Ours was rolled back, and another delivery came after it: the effects are there, and its answer counts.
            self._is_anothers = True
            self.answer = Answer.read(named(Kept, results[2])[0]) if results[2] else None
        return Fate.COMMITTED

    def _tell(self, error: BaseException) -> None:
        self._inbox.events.emit(events.StatementFailed("inbox", error))

    @staticmethod
    async def _discard(session: AsyncSession) -> None:
        await session.close()

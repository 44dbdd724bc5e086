"""A transaction on tables in memory: what it changed is seen by itself, is there after its commit, or taken back.

A handler's own transaction is hidden until it commits, and so is an application's session where the engine's loops
run. Where `publish` handles at once, what a session publishes is there at once too, and only its rollback takes it
back. A rolled back savepoint takes back what was done within it. Transactions do not wait for each other. The sessions
do nothing but end one. Used by the producer and the client of the test broker, and by tests that publish without a
database.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, cast
from unittest.mock import AsyncMock, MagicMock, NonCallableMock

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from faststream_outbox._internal.connections.caller import check_open, check_session, check_sync_session
from faststream_outbox._internal.connections.dedicated import Row
from faststream_outbox._internal.envelope import OnDuplicate
from faststream_outbox._internal.log.message import OutboxMessage
from faststream_outbox._internal.memory.log import MemoryLog
from faststream_outbox._internal.memory.tables import MemoryRow, MemoryTables
from faststream_outbox._internal.sql.log_rows import ReadMessage

KEPT = "faststream_outbox.memory_transaction"
ATTRIBUTE = "outbox_transaction"
"""Where sessions that do nothing keep theirs."""

Scopes = Sequence[object]


class Step(NamedTuple):
    """A change, and how it is taken back."""

    scopes: Scopes
    """The transaction and the savepoints that it was made within."""
    undo: Callable[[], None]


class MemoryTransaction:
    """Changes that are not committed."""

    def __init__(self, *, is_hidden: bool) -> None:
        self.is_hidden = is_hidden
        self._steps: list[Step] = []
        self._rows: dict[MemoryTables, list[MemoryRow]] = {}
        self._appended: dict[MemoryLog, list[ReadMessage]] = {}
        self._then: list[Callable[[], None]] = []

    def own(self, tables: MemoryTables) -> list[MemoryRow]:
        """Rows of its own that nobody else sees."""
        return self._rows.setdefault(tables, [])

    def answer(self, tables: MemoryTables, name: str, values: Mapping[str, Any], scopes: Scopes = ()) -> list[Row]:
        """The rows that the named statement returns within this transaction."""
        own = self.own(tables)
        before, mine = list(tables.rows), list(own)
        tables.rows += mine
        try:
            answer = tables.answer(name, values)
        finally:
            after = list(tables.rows)
            if self.is_hidden:
                known = {*before}
                tables.rows[:] = [row for row in after if row in known]
                own[:] = [row for row in after if row not in known]
        if after != before + mine:
            self._steps.append(Step(scopes, partial(self._undo, tables, before, mine, after)))
        return answer

    def _undo(
        self, tables: MemoryTables, before: list[MemoryRow], mine: list[MemoryRow], after: list[MemoryRow]
    ) -> None:
        known, there = {*before, *mine}, {*after}
        own = self.own(tables)
        own[:] = [row for row in own if row in known] + [row for row in mine if row not in there]
        gone = [row for row in before if row not in there]
        added = {row for row in after if row not in known}
        tables.rows[:] = sorted([row for row in tables.rows if row not in added] + gone, key=lambda row: row.id)

    def append(
        self, log: MemoryLog, messages: Sequence[OutboxMessage], on_duplicate: OnDuplicate, scopes: Scopes = ()
    ) -> list[ReadMessage]:
        """Write to topics within this transaction; the rows."""
        own = self._appended.setdefault(log, [])
        rows = log.append(messages, on_duplicate, own)
        if self.is_hidden:
            own += rows
        else:
            log.keep(rows)

        def undo() -> None:
            log.drop(rows)
            own[:] = [row for row in own if row not in rows]

        self._steps.append(Step(scopes, undo))
        return rows

    def then(self, call: Callable[[], None]) -> None:
        """Call this after the commit."""
        self._then.append(call)

    def commit(self) -> None:
        """Let everybody see it."""
        for tables, rows in self._rows.items():
            tables.rows[:] = sorted(tables.rows + rows, key=lambda row: row.id)
            rows.clear()
        for log, appended in self._appended.items():
            log.keep(appended)
            appended.clear()
        self._steps.clear()
        calls, self._then = self._then, []
        for call in calls:
            call()

    def rollback(self, scope: object = None) -> None:
        """Take everything back, or what was done within a savepoint."""
        left: list[Step] = []
        for step in reversed(self._steps):
            if scope is None or scope in step.scopes:
                step.undo()
            else:
                left.insert(0, step)
        self._steps = left
        if not left:
            self._then.clear()


class Opened:
    """A caller's session, as far as tables in memory are concerned."""

    def __init__(self, given: Any, *, is_hidden: bool, is_sync: bool = False) -> None:
        self.transaction: MemoryTransaction | None = None
        """None where there is none, or none that its end is known of: what is written is there at once."""
        self.session: Session | None = None
        self.scopes: Scopes = ()
        check_open(given)
        if isinstance(given, NonCallableMock):
            self.transaction = vars(given).get(ATTRIBUTE)
        if given is None or (isinstance(given, NonCallableMock) and not (is_sync and isinstance(given, AsyncSession))):
            return
        (check_sync_session if is_sync else check_session)(given)
        session = given() if isinstance(given, async_scoped_session | scoped_session) else given
        real = getattr(session, "sync_session", session)
        if not isinstance(real, Session):
            return
        if not real.in_transaction():
            # As the first statement would.
            real.begin()
        self.session = real
        self.transaction = real.info.get(KEPT)
        if self.transaction is None:
            _listen()
            self.transaction = real.info[KEPT] = MemoryTransaction(is_hidden=is_hidden)
        self.scopes = _scopes(real)


def _scopes(session: Session) -> Scopes:
    inner: SessionTransaction | None = session.get_nested_transaction() or session.get_transaction()
    found: list[object] = []
    while inner is not None:
        found.append(inner)
        inner = inner.parent
    return found


@cache
def _listen() -> None:
    event.listen(Session, "after_commit", _commit)
    event.listen(Session, "after_soft_rollback", _roll_back)
    event.listen(Session, "after_transaction_end", _end)


def _commit(session: Session) -> None:
    # Also fired when a savepoint is released, while its transaction is still the current one.
    if KEPT in session.info and not session.in_nested_transaction():
        session.info.pop(KEPT).commit()


def _roll_back(session: Session, transaction: SessionTransaction) -> None:
    if KEPT in session.info:
        session.info[KEPT].rollback(transaction)


def _end(session: Session, transaction: SessionTransaction) -> None:
    if transaction.parent is None and KEPT in session.info:
        session.info.pop(KEPT).rollback()


def fake_session() -> AsyncSession:
    """A session that does nothing, for tests that publish; its rollback takes back what was published through it."""
    return cast("AsyncSession", _idle_session(MemoryTransaction(is_hidden=False)))


def fake_sync_session() -> Session:
    """The same, for tests of code without an event loop."""
    transaction = MemoryTransaction(is_hidden=False)
    session = MagicMock(spec=Session)
    session.in_transaction.return_value = True
    setattr(session, ATTRIBUTE, transaction)
    session.commit.side_effect = transaction.commit
    session.rollback.side_effect = transaction.rollback
    session.close.side_effect = transaction.rollback
    return cast("Session", session)


def handler_session() -> AsyncSession:
    """A session for a transactional handler: what is published through it is there after its commit."""
    session = _idle_session(MemoryTransaction(is_hidden=True))
    session.__aenter__.return_value = session
    session.begin = AsyncMock()
    return cast("AsyncSession", session)


def _idle_session(transaction: MemoryTransaction) -> Any:
    session = AsyncMock(spec=AsyncSession)
    session.in_transaction.return_value = True
    # Results are not awaited.
    session.execute.return_value, session.scalars.return_value = MagicMock(), MagicMock()
    setattr(session, ATTRIBUTE, transaction)

    async def commit() -> None:
        transaction.commit()

    async def rollback() -> None:
        transaction.rollback()

    session.commit.side_effect = commit
    session.rollback.side_effect = rollback
    session.close.side_effect = rollback
    return session

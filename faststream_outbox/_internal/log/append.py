"""Publishing to the log: rows in the caller's transaction, and a token to wait by.

Never commits, flushes or rolls back. A taken event_id is found without an error of the database, so the
caller's transaction stays usable whatever was chosen, and a call that raises has published nothing.
Numbers are drawn by the INSERT itself, after the transaction has its xid: the sequencer's argument stands
on that. Used by `Outbox` and by the broker.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from hashlib import md5
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

from faststream_outbox._internal.connections.caller import (
    AnySession,
    AnySyncSession,
    CallerConnection,
    Rows,
    Steps,
    caller_connection,
    caller_connection_sync,
    run,
    run_sync,
)
from faststream_outbox._internal.connections.cause import DIVIDED_BY_ZERO, has_state
from faststream_outbox._internal.envelope import MAX_BODY_BYTES, OnDuplicate, size_of
from faststream_outbox._internal.log.message import CheckedMessage, OutboxMessage, checked
from faststream_outbox._internal.schema.log_tables import LogNames, LogTables
from faststream_outbox._internal.sql.log_rows import Appended, AppendedWhole
from faststream_outbox._internal.sql.statements import Statement, Statements, column, named, statements
from faststream_outbox._internal.wakeup.after_commit import call_after_commit, tell_after_commit
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.errors import (
    DuplicateMessage,
    InvalidMessage,
    InvalidOption,
    MissingRight,
    OutboxError,
    SequenceBehind,
)

Tell = Callable[[Hint], None]

_KEY_CLASS = 0x6F75  # One number for the locks of keys, so that they meet no other locks of the application.


@dataclass(frozen=True, slots=True)
class Token:
    """What was published, to wait for: `await outbox.wait_until_caught_up(token, "group")` after the commit."""

    positions: tuple[int, ...]


Written = Sequence[Appended] | Sequence[AppendedWhole]

WHOLE = "append_whole"


def _sql(opened: CallerConnection, tables: LogTables) -> Statements:
    return statements("log", LogNames.of(tables, opened.schema_map))


def _statement(
    opened: CallerConnection, tables: LogTables, rows: Sequence[CheckedMessage], on_duplicate: OnDuplicate
) -> tuple[Statement, dict[str, Any]]:
    sql = _sql(opened, tables)
    if len(rows) == 1 and not tables.is_partitioned:
        row = rows[0]
        return sql["append_one"], {
            "uri": row.uri,
            "slot": row.slot,
            "payload": row.payload,
            "body": row.body,
            "metadata": row.metadata,
            "event_id": None if row.event_id is None else str(row.event_id),
        }
    name = "append_to_partitions" if tables.is_partitioned else "append"
    if opened.is_autocommit and on_duplicate == "error":
        # Nothing could be taken back afterwards.
        name = WHOLE
    return sql[name], {
        "uris": [row.uri for row in rows],
        "slots": [row.slot for row in rows],
        "payloads": [row.payload for row in rows],
        "bodies": [row.body for row in rows],
        "metadata": [row.metadata for row in rows],
        "event_ids": [None if row.event_id is None else str(row.event_id) for row in rows],
    }


def _locks(
    opened: CallerConnection, tables: LogTables, rows: Sequence[CheckedMessage]
) -> tuple[Statement, dict[str, Any]]:
    numbers = sorted({_lock_number(row.uri) for row in rows})
    return _sql(opened, tables)["lock_keys"], {"class": _KEY_CLASS, "numbers": numbers}


def _lock_number(uri: str) -> int:
    return int.from_bytes(md5(uri.encode(), usedforsecurity=False).digest()[:4], signed=True)


def _named(statement: Statement, rows: Rows) -> Written:
    return named(AppendedWhole, rows) if statement.name == WHOLE else named(Appended, rows)


def _problem(rows: Sequence[CheckedMessage], written: Written, on_duplicate: OnDuplicate) -> OutboxError | None:
    """Why what was written cannot stay, if it cannot."""
    if sum(row.event_id is None for row in rows) > sum(row.event_id is None for row in written):
        # In the place of another message, and left out.
        return _behind()
    if len(written) < len(rows) and on_duplicate == "error":
        there = _ids(row.event_id for row in written)
        return _duplicate(rows, {row.event_id for row in rows if row.event_id not in there})
    return None


def _behind() -> SequenceBehind:
    return SequenceBehind(
        "The log's sequence gives out numbers that are taken already. The database is a copy without its "
        "sequences: roll back and call setup(), or start a consumer, which repairs it."
    )


def _duplicate(rows: Sequence[CheckedMessage], taken: Set[UUID | None]) -> DuplicateMessage:
    given = {str(row.given_id) for row in rows if row.event_id is not None and row.event_id in taken}
    names = ", ".join(sorted(given)) or "one twice in this call"
    return DuplicateMessage(
        f"Published before, by event_id: {names}. Nothing of this call was published. Pass on_duplicate='ignore' to "
        "leave out what is there already."
    )


def _ids(values: Iterable[object]) -> set[UUID | None]:
    # Not every driver makes UUIDs of them.
    return {UUID(str(value)) for value in values if value is not None}


def _reason(rows: Sequence[CheckedMessage], ids: Sequence[str], taken: Rows) -> OutboxError:
    if not taken and len(set(ids)) == len(ids):
        return _behind()
    return _duplicate(rows, _ids(column(taken)))


def _wake(opened: CallerConnection, tell: Tell | None, committed: Callable[[], None] | None) -> None:
    if committed is not None:
        if opened.session is None or opened.is_autocommit:
            committed()
        else:
            call_after_commit(opened.session, committed)
    if tell is None:
        return
    if opened.is_autocommit:
        tell(Hint(None))
    elif opened.session is not None:
        tell_after_commit(opened.session, tell, [Hint(None)])


async def append(
    session: AnySession,
    tables: LogTables,
    messages: Sequence[OutboxMessage],
    *,
    on_duplicate: OnDuplicate = "error",
    strict_key_order: bool = False,
    tell: Tell | None = None,
    committed: Callable[[], None] | None = None,
) -> Token:
    """Insert the messages in the session's transaction, in one statement; `committed` is called after its commit."""
    rows = _checked(messages, on_duplicate)
    if not rows:
        return Token(())
    if isinstance(session, async_scoped_session):
        session = session()
    if isinstance(session, AsyncSession | AsyncConnection):
        # In one crossing of SQLAlchemy's bridge to synchronous code: each costs as much as the INSERT.
        return await session.run_sync(_append, tables, rows, on_duplicate, strict_key_order, tell, committed)
    opened = await caller_connection(session, tables.log)
    return await run(opened, _appending(opened, tables, rows, on_duplicate, strict_key_order, tell, committed))


def append_sync(
    session: AnySyncSession,
    tables: LogTables,
    messages: Sequence[OutboxMessage],
    *,
    on_duplicate: OnDuplicate = "error",
    strict_key_order: bool = False,
    tell: Tell | None = None,
    committed: Callable[[], None] | None = None,
) -> Token:
    """As `append`, for a sync session or connection."""
    rows = _checked(messages, on_duplicate)
    return _append(session, tables, rows, on_duplicate, strict_key_order, tell, committed) if rows else Token(())


def _checked(messages: Sequence[OutboxMessage], on_duplicate: str) -> list[CheckedMessage]:
    if on_duplicate not in ("error", "ignore"):
        msg = f"on_duplicate must be 'error' or 'ignore', not {on_duplicate!r}."
        raise InvalidOption(msg)
    rows = [checked(message) for message in messages]
    size = sum(_size(row) for row in rows)
    if size > MAX_BODY_BYTES:
        msg = (
            f"The messages of this call have {size} bytes together; {MAX_BODY_BYTES} fit. Publish them in smaller "
            "calls, or store payloads elsewhere and send their names."
        )
        raise InvalidMessage(msg)
    return rows


def _size(row: CheckedMessage) -> int:
    content = size_of(row.payload) if row.payload is not None else len(row.body or b"")
    return content + size_of(row.metadata)


def _append(
    session: AnySyncSession,
    tables: LogTables,
    rows: Sequence[CheckedMessage],
    on_duplicate: OnDuplicate,
    strict_key_order: bool,
    tell: Tell | None,
    committed: Callable[[], None] | None,
) -> Token:
    opened = caller_connection_sync(session, tables.log)
    return run_sync(opened, _appending(opened, tables, rows, on_duplicate, strict_key_order, tell, committed))


def _appending(
    opened: CallerConnection,
    tables: LogTables,
    rows: Sequence[CheckedMessage],
    on_duplicate: OnDuplicate,
    strict_key_order: bool,
    tell: Tell | None,
    committed: Callable[[], None] | None,
) -> Steps[Token]:
    if strict_key_order:
        yield _locks(opened, tables, rows)
    statement, values = _statement(opened, tables, rows, on_duplicate)
    try:
        written = _named(statement, (yield statement, values))
    except Exception as error:
        if not has_state(error, DIVIDED_BY_ZERO):
            raise
        # Nothing was written, because something would have been left out.
        ids = [str(row.event_id) for row in rows if row.event_id is not None]
        raise _reason(rows, ids, (yield _sql(opened, tables)["taken"], {"event_ids": ids})) from error
    problem = _problem(rows, written, on_duplicate)
    if problem is not None:
        try:
            if written:
                yield _withdrawal(opened, tables, written)
        except MissingRight as error:
            raise _unwithdrawn(problem) from error
        raise problem
    _wake(opened, tell, committed)
    return Token(tuple([row.position for row in written]))


def _unwithdrawn(problem: OutboxError) -> OutboxError:
    """The problem of a role that may not delete: what it wrote goes away with its transaction alone."""
    return type(problem)(f"{problem} Roll the transaction back: the role may not DELETE what the call has written.")


def _withdrawal(opened: CallerConnection, tables: LogTables, written: Written) -> tuple[Statement, dict[str, Any]]:
    return _sql(opened, tables)["withdraw"], {"positions": [row.position for row in written]}

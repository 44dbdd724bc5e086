"""Publishing, taking a timer back, and looking at what is not finished, with and without an event loop.

`publish` sends one INSERT for what is alike, and nothing else, in the caller's transaction; hints leave after its
commit. `cancel_timer` deletes a timer that nobody holds: what waited behind it, for its key, goes on after the commit.
The questions lease nothing and lock nothing. Called by the broker, by applications that use the engine alone, and by
tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import Any
from uuid import UUID

from sqlalchemy import Table
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
from faststream_outbox._internal.envelope import CheckedEnvelope, Envelope, checked_queue, checked_text, read_headers
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.types import Published
from faststream_outbox._internal.options import BIGINT, check_count
from faststream_outbox._internal.publish.rows import checked_batch, hints_of, ids_of, insertion, portions
from faststream_outbox._internal.sql.queue_rows import UnprocessedRow
from faststream_outbox._internal.sql.statements import column
from faststream_outbox._internal.wakeup.after_commit import call_after_commit, tell_after_commit
from faststream_outbox._internal.wakeup.hint import Hint, notices
from faststream_outbox._internal.wakeup.wakeups import Wakeups


async def publish(
    session: AnySession,
    table: Table,
    *envelopes: Envelope | CheckedEnvelope,
    wakeups: Wakeups | None = None,
    events: Events | None = None,
) -> list[int | None]:
    """Insert the messages in the session's transaction; returns their ids, None where a timer_id was taken."""
    return await publish_rows(session, table, checked_batch(envelopes), wakeups=wakeups, events=events)


async def publish_rows(
    session: AnySession,
    table: Table,
    rows: Sequence[CheckedEnvelope],
    *,
    wakeups: Wakeups | None = None,
    events: Events | None = None,
) -> list[int | None]:
    """As `publish`, for rows that `checked_batch` has made."""
    if not rows:
        return []
    if isinstance(session, async_scoped_session):
        session = session()
    if isinstance(session, AsyncSession | AsyncConnection):
        # All in one crossing of SQLAlchemy's bridge to synchronous code: each costs as much as the INSERT.
        return await session.run_sync(_put, table, rows, wakeups, events)
    opened = await caller_connection(session, table)
    return await run(opened, _putting(opened, rows, wakeups, events))


def publish_sync(
    session: AnySyncSession,
    table: Table,
    *envelopes: Envelope | CheckedEnvelope,
    wakeups: Wakeups | None = None,
    events: Events | None = None,
) -> list[int | None]:
    """As `publish`, for a sync session or connection."""
    return publish_rows_sync(session, table, checked_batch(envelopes), wakeups=wakeups, events=events)


def publish_rows_sync(
    session: AnySyncSession,
    table: Table,
    rows: Sequence[CheckedEnvelope],
    *,
    wakeups: Wakeups | None = None,
    events: Events | None = None,
) -> list[int | None]:
    """As `publish_rows`, for a sync session or connection."""
    return _put(session, table, rows, wakeups, events) if rows else []


def _put(
    session: AnySyncSession,
    table: Table,
    rows: Sequence[CheckedEnvelope],
    wakeups: Wakeups | None,
    events: Events | None,
) -> list[int | None]:
    opened = caller_connection_sync(session, table)
    return run_sync(opened, _putting(opened, rows, wakeups, events))


def _putting(
    opened: CallerConnection, rows: Sequence[CheckedEnvelope], wakeups: Wakeups | None, events: Events | None
) -> Steps[list[int | None]]:
    began = perf_counter()
    ids: list[int | None] = []
    try:
        for portion in portions(rows):
            name, values = insertion(portion)
            ids += ids_of(portion, (yield opened.sql("publish", name), values))
    except BaseException as error:
        tell_published(events, rows, began, error)
        raise
    tell_committed(opened, events, rows, ids, began)
    for values in _wake(opened, rows, ids, wakeups):
        yield opened.sql("publish", "notify_both"), values
    return ids


def _wake(
    opened: CallerConnection, rows: Sequence[CheckedEnvelope], ids: Sequence[int | None], wakeups: Wakeups | None
) -> list[dict[str, Any]]:
    """Arrange for the hints; returns the NOTIFYs that must be sent in the caller's transaction."""
    if wakeups is None:
        return []
    hints = hints_of(rows, ids)
    if wakeups.mode == "in_transaction":
        if opened.session is not None and not opened.is_autocommit:
            # No hint is sent after the commit; but a session that forgets its commit is noticed.
            tell_after_commit(opened.session, _nobody, hints)
        return in_transaction(wakeups, hints)
    if opened.is_autocommit:
        for hint in hints:
            wakeups.tell(hint)
    elif opened.session is not None:
        tell_after_commit(opened.session, wakeups.tell, hints)
    return []


def _nobody(_: Hint) -> None: ...


def in_transaction(wakeups: Wakeups, hints: Sequence[Hint]) -> list[dict[str, Any]]:
    """The NOTIFYs that must be sent in the caller's transaction."""
    # A message for later would wake sleepers who find nothing.
    # How long the transaction will stay open is not known: its messages may lie below the claimers' floors by then.
    due = [replace(hint, scan=True) for hint in hints if hint.due_in <= 0]
    return [wakeups.values(notice) for notice in notices(due, sender="transaction")]


def tell_committed(
    opened: CallerConnection,
    events: Events | None,
    rows: Sequence[CheckedEnvelope],
    ids: Sequence[int | None],
    began: float,
) -> None:
    """Emit that messages were written, once they are committed; at once where that cannot be heard."""
    if events is None or Published not in events:
        return
    seconds = perf_counter() - began
    written = [row for row, number in zip(rows, ids, strict=True) if number is not None]
    if opened.session is None or opened.is_autocommit:
        _emit(events, written, seconds)
    else:
        call_after_commit(opened.session, partial(_emit, events, written, seconds))


def tell_published(
    events: Events | None, rows: Sequence[CheckedEnvelope], began: float, error: BaseException | None = None
) -> None:
    """Emit that messages were written, or could not be."""
    if events is None or Published not in events:
        return
    _emit(events, rows, perf_counter() - began, error)


def _emit(events: Events, rows: Sequence[CheckedEnvelope], seconds: float, error: BaseException | None = None) -> None:
    for queue in dict.fromkeys(row.queue for row in rows):
        of_queue = [row for row in rows if row.queue == queue]
        size = sum(len(row.payload) for row in of_queue)
        events.emit(Published(queue, len(of_queue), size, seconds, error))


def _timer(queue: object, timer_id: object) -> dict[str, Any]:
    return {"queue": checked_queue(queue), "timer_id": checked_text(timer_id, "timer_id")}


def freed(queue: str, deleted: Rows) -> list[Hint]:
    """What to tell workers of timers that were deleted."""
    return [Hint(queue, keyless=False, scan=True)] if any(column(deleted)) else []


def _wake_after_cancel(opened: CallerConnection, hints: list[Hint], wakeups: Wakeups | None) -> list[dict[str, Any]]:
    """Arrange for the hints; returns the NOTIFYs that must be sent in the caller's transaction."""
    if wakeups is None:
        return []
    if wakeups.mode == "in_transaction":
        return in_transaction(wakeups, hints)
    for hint in hints:
        if opened.is_autocommit:
            wakeups.tell(hint)
        elif opened.session is not None:
            call_after_commit(opened.session, partial(wakeups.tell, hint))
    return []


async def cancel_timer(
    session: AnySession, table: Table, *, queue: str, timer_id: str, wakeups: Wakeups | None = None
) -> bool:
    """Delete the timer in the session's transaction; False if there is none or a worker holds it."""
    values = _timer(queue, timer_id)
    opened = await caller_connection(session, table)
    return await run(opened, _cancelling(opened, values, wakeups))


def cancel_timer_sync(
    session: AnySyncSession, table: Table, *, queue: str, timer_id: str, wakeups: Wakeups | None = None
) -> bool:
    """As `cancel_timer`, for a sync session or connection."""
    values = _timer(queue, timer_id)
    opened = caller_connection_sync(session, table)
    return run_sync(opened, _cancelling(opened, values, wakeups))


def _cancelling(opened: CallerConnection, values: Mapping[str, Any], wakeups: Wakeups | None) -> Steps[bool]:
    deleted = yield opened.sql("publish", "cancel_timer"), values
    for notice in _wake_after_cancel(opened, freed(values["queue"], deleted), wakeups):
        yield opened.sql("publish", "notify_both"), notice
    return bool(deleted)


@dataclass(frozen=True, slots=True)
class Unprocessed:
    """A message as it stands in the table now; leased if `acquired_token` is set."""

    id: int
    queue: str
    payload: bytes
    headers: Mapping[str, Any]
    attempts_count: int
    deliveries_count: int
    created_at: datetime
    next_attempt_at: datetime
    first_attempt_at: datetime | None
    last_attempt_at: datetime | None
    acquired_at: datetime | None
    acquired_token: UUID | None
    timer_id: str | None
    key: str | None
    priority: int
    message_id: UUID


async def fetch_unprocessed(
    session: AnySession, table: Table, *, queue: str | None = None, limit: int = 1000
) -> list[Unprocessed]:
    """Messages that are not finished, by id: the first `limit` of a queue to fall due, or the oldest of all."""
    check_count("limit", limit, most=BIGINT.stop - 1)
    values: dict[str, Any] = {"limit": limit}
    name = "unprocessed"
    if queue is not None:
        values["queue"] = checked_queue(queue)
        name = "unprocessed_of_queue"
    opened = await caller_connection(session, table)
    rows = await opened.fetch(opened.sql("publish", name), values)
    return [as_unprocessed(row) for row in rows]


def as_unprocessed(columns: Sequence[Any]) -> Unprocessed:
    """The message of a row of `unprocessed` or `unprocessed_of_queue`."""
    row = UnprocessedRow(*columns)
    return Unprocessed(**{**row._asdict(), "headers": read_headers(row.headers)})

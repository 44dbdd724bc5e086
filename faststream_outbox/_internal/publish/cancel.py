"""Taking back a timer before it fires. What waited behind it, for its key, goes on after the commit."""

from functools import partial
from typing import Any

from sqlalchemy import Table

from faststream_outbox._internal.connections.caller import (
    AnySession,
    AnySyncSession,
    CallerConnection,
    Rows,
    caller_connection,
    caller_connection_sync,
)
from faststream_outbox._internal.envelope import checked_queue, checked_text
from faststream_outbox._internal.publish.put import in_transaction
from faststream_outbox._internal.sql.rows import column
from faststream_outbox._internal.wakeup.after_commit import call_after_commit
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox._internal.wakeup.wakeups import Wakeups


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
    deleted = await opened.fetch(opened.sql("publish", "cancel_timer"), values)
    for notice in _wake_after_cancel(opened, freed(queue, deleted), wakeups):
        await opened.fetch(opened.sql("publish", "notify_both"), notice)
    return bool(deleted)


def cancel_timer_sync(
    session: AnySyncSession, table: Table, *, queue: str, timer_id: str, wakeups: Wakeups | None = None
) -> bool:
    """As `cancel_timer`, for a sync session or connection."""
    values = _timer(queue, timer_id)
    opened = caller_connection_sync(session, table)
    deleted = opened.fetch_sync(opened.sql("publish", "cancel_timer"), values)
    for notice in _wake_after_cancel(opened, freed(queue, deleted), wakeups):
        opened.fetch_sync(opened.sql("publish", "notify_both"), notice)
    return bool(deleted)

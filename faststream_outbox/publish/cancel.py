"""Taking back a timer before it fires."""

from typing import Any

from sqlalchemy import Table

from faststream_outbox.envelope import checked_queue, checked_text
from faststream_outbox.sql.through import AnySession, AnySyncSession, through, through_sync


def _timer(queue: object, timer_id: object) -> dict[str, Any]:
    return {"queue": checked_queue(queue), "timer_id": checked_text(timer_id, "timer_id")}


async def cancel_timer(session: AnySession, table: Table, *, queue: str, timer_id: str) -> bool:
    """Delete the timer in the session's transaction; False if there is none or a worker holds it."""
    values = _timer(queue, timer_id)
    opened = await through(session, table)
    return bool(await opened.fetch(opened.sql("publish", "cancel_timer"), values))


def cancel_timer_sync(session: AnySyncSession, table: Table, *, queue: str, timer_id: str) -> bool:
    """As `cancel_timer`, for a sync session or connection."""
    values = _timer(queue, timer_id)
    opened = through_sync(session, table)
    return bool(opened.fetch_sync(opened.sql("publish", "cancel_timer"), values))

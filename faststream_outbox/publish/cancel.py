"""Taking back a timer before it fires."""

from typing import Any

from sqlalchemy import Table

from faststream_outbox.connections.caller import AnySession, AnySyncSession, caller_connection, caller_connection_sync
from faststream_outbox.envelope import checked_queue, checked_text


def _timer(queue: object, timer_id: object) -> dict[str, Any]:
    return {"queue": checked_queue(queue), "timer_id": checked_text(timer_id, "timer_id")}


async def cancel_timer(session: AnySession, table: Table, *, queue: str, timer_id: str) -> bool:
    """Delete the timer in the session's transaction; False if there is none or a worker holds it."""
    values = _timer(queue, timer_id)
    opened = await caller_connection(session, table)
    return bool(await opened.fetch(opened.sql("publish", "cancel_timer"), values))


def cancel_timer_sync(session: AnySyncSession, table: Table, *, queue: str, timer_id: str) -> bool:
    """As `cancel_timer`, for a sync session or connection."""
    values = _timer(queue, timer_id)
    opened = caller_connection_sync(session, table)
    return bool(opened.fetch_sync(opened.sql("publish", "cancel_timer"), values))

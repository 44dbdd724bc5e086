"""Read-only questions about the tables: they lease nothing and lock nothing.

Asked by the broker (`fetch_unprocessed`), by tests, and by operators.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Table

from faststream_outbox._internal.connections.caller import AnySession, caller_connection
from faststream_outbox._internal.envelope import checked_queue, read_headers
from faststream_outbox._internal.options import BIGINT, check_count
from faststream_outbox._internal.sql.queue_rows import UnprocessedRow


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

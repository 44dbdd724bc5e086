"""The shapes of what questions about queues and topics return. See `statements`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from faststream_outbox._internal.sql.queue_rows import DeadGroupRow, DeadLetterRow


class OpenGap(NamedTuple):
    """A gap, and a transaction that may own it; without the right to see others' queries, little is known of it."""

    lo: int
    hi: int
    since: datetime | None
    age: float | None
    pid: int | None
    prepared: str | None
    database: str
    user: str | None
    application: str | None
    state: str | None
    query: str | None
    began_at: datetime | None
    running: float | None
    xid: str | None


class BlockedKeyRow(NamedTuple):
    """A key that waits, and the message that it waits for."""

    consumer_group: str
    uri: str
    key: str
    position: int
    state: str
    waiting: int
    is_estimate: bool
    has_more: bool
    since: datetime
    attempts: int
    due: datetime | None
    error_type: str | None
    error_message: str | None


class OldestOfGroup(NamedTuple):
    """What a group has deferred, or would read first where it has no place yet; None where there is nothing."""

    consumer_group: str
    uri: str
    has_place: bool
    seconds: float | None


class LaneCountRow(NamedTuple):
    """A lane, and how many messages of each kind were counted in it."""

    queue: str
    keyed: bool
    priority: int
    due: int
    """Free and leased together."""
    ready: int
    leased: int
    oldest_seconds: float | None
    scheduled: int
    set_apart: int


class DeadCountRow(NamedTuple):
    """How many dead letters of a queue were counted."""

    queue: str
    dead: int


class HolderRow(NamedTuple):
    """How many leases of a worker id were seen."""

    worker_id: str
    leases: int


class ConnectionRow(NamedTuple):
    """A server process and the name that its client gave itself."""

    pid: int
    application_name: str
    backend_start: datetime | None
    """None where the role may not know."""


class MessageRow(NamedTuple):
    """A message as it stands in the table, and what may keep it from running."""

    id: int
    queue: str
    payload: bytes
    headers: str | None
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
    server_now: datetime
    is_set_apart: bool
    is_paused: bool
    head_id: int | None
    """The message of the key that comes first; None without a key, and where none is due."""
    is_head_leased: bool | None
    head_due_at: datetime | None
    dead_of_key: int | None
    """A dead letter of the same key."""


class SearchedRow(NamedTuple):
    """How many rows of a slice were looked at, the last of them, and the one that was searched for."""

    seen: int
    last: int | None
    found: int | None


class TimerRow(NamedTuple):
    """A timer, and how many were looked at."""

    queue: str
    timer_id: str
    id: int
    due_at: datetime
    is_leased: bool
    attempts_count: int
    seen: int


class WrittenRow(NamedTuple):
    """What the server's statistics count of the tables."""

    inserted: int
    deleted: int
    died: int | None
    """None without a table of dead letters."""
    at: float
    is_standby: bool


class TableRowsRow(NamedTuple):
    """A table, and how many of its rows live and are dead, as the server has counted."""

    table_name: str
    live: float
    dead: float


SHAPES: Mapping[tuple[str, str], type[tuple[Any, ...]]] = {
    ("overview_log", "open_gaps"): OpenGap,
    ("overview_log", "blocked_keys"): BlockedKeyRow,
    ("overview_log", "oldest_of_groups"): OldestOfGroup,
    ("overview", "connections"): ConnectionRow,
    ("overview", "count_dead"): DeadCountRow,
    ("overview", "count_lanes"): LaneCountRow,
    ("overview", "dead_after"): DeadLetterRow,
    ("overview", "group_newest_dead"): DeadGroupRow,
    ("overview", "holders"): HolderRow,
    ("overview", "message_by_id"): MessageRow,
    ("overview", "search_dead"): SearchedRow,
    ("overview", "search_messages"): SearchedRow,
    ("overview", "timers"): TimerRow,
    ("overview", "timers_of_lanes"): TimerRow,
    ("overview", "timers_of_queue"): TimerRow,
    ("overview", "written"): WrittenRow,
    ("sample", "rows"): TableRowsRow,
}
"""By file and name of the statement."""

"""The shapes of what the doctor asks for. See `rows`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class ServerRow(NamedTuple):
    """The server as this role sees it."""

    version: int
    """As `server_version_num`: 180001."""
    is_standby: bool
    role: str
    database: str
    sees_all: bool
    """Whether sessions of other roles are shown in full."""


class SettingRow(NamedTuple):
    """A setting, and where it comes from."""

    name: str
    setting: str
    source: str


class RelationRow(NamedTuple):
    """A table of ours, or a part of one."""

    name: str
    """As SQL, with its schema."""
    schema: str
    bare_name: str
    parent: str | None
    is_partitioned: bool
    is_unlogged: bool
    options: Sequence[str]
    estimated_rows: float
    dead_rows: int
    live_rows: int
    vacuumed_seconds_ago: float | None
    frozen_age: int | None
    """Transactions since the oldest number in it; None where it has no rows of its own."""
    bytes: int
    """As of the last vacuum or ANALYZE."""
    bound: str | None
    """Which positions a part has, as SQL."""


class IndexRow(NamedTuple):
    """An index of a table of ours."""

    name: str
    """As SQL, with its schema."""
    table_name: str
    bare_table: str
    is_partitioned: bool
    is_usable: bool
    is_unique: bool
    is_constraint: bool
    is_building: bool
    columns: Sequence[str]
    """Empty names are expressions."""
    scans: int
    inserted_rows: int
    bytes: int


class SessionRow(NamedTuple):
    """A session that is in a transaction for some time."""

    pid: int
    role: str | None
    application: str | None
    state: str | None
    query: str | None
    seconds: float
    transactions: int
    """How many have begun since the oldest that it can see."""


class PreparedRow(NamedTuple):
    """A transaction that was prepared and not ended."""

    gid: str
    role: str
    seconds: float
    transactions: int


class SlotRow(NamedTuple):
    """A replication slot; what it does not keep, or the server does not know, is None."""

    name: str
    kind: str
    is_active: bool
    is_temporary: bool
    transactions: int | None
    catalog_transactions: int | None
    wal_bytes: float
    inactive_seconds: float | None


class FeedbackRow(NamedTuple):
    """A standby that keeps dead rows here."""

    pid: int
    application: str | None
    address: str | None
    transactions: int


class BudgetRow(NamedTuple):
    """Connections that there may be and are."""

    most: int
    reserved: int
    used: int
    of_database: int
    most_of_database: int
    """-1 is no limit."""
    idle: int


class NotificationsRow(NamedTuple):
    """How full the queue of notifications is, and a transaction that may be why; None where there is no other."""

    share: float
    pid: int | None
    role: str | None
    application: str | None
    state: str | None
    query: str | None
    seconds: float | None


class DrawnRow(NamedTuple):
    """How far numbers were drawn, None where we may not know, and the highest that is there."""

    sequence: str | None
    may_read: bool
    drawn: int | None
    highest: int | None


class ReadyRow(NamedTuple):
    """A queue whose oldest message that is due and that nobody holds is old."""

    queue: str
    seconds: float


class PausedRow(NamedTuple):
    """A queue that is paused for long."""

    queue: str
    seconds: float
    waiting: int


class HeldKeyRow(NamedTuple):
    """A key with dead letters and messages that nobody takes."""

    queue: str
    key: str
    waiting: int
    seconds: float
    letters: Sequence[int]


class RecentDeadRow(NamedTuple):
    """A queue whose messages die."""

    queue: str
    letters: int
    failure_reason: str
    error_type: str | None


class GroupRow(NamedTuple):
    """A group that nobody reads, and about how many messages it has not read."""

    consumer_group: str
    uri: str
    seconds: float
    messages: int


class ParkedHeadRow(NamedTuple):
    """A key of a group whose messages wait for a parked one."""

    consumer_group: str
    uri: str
    key: str
    position: int
    error_type: str | None
    seconds: float
    waiting: int


SHAPES: Mapping[tuple[str, str], type[tuple[Any, ...]]] = {
    ("doctor", "server"): ServerRow,
    ("doctor", "settings"): SettingRow,
    ("doctor", "relations"): RelationRow,
    ("doctor", "indexes"): IndexRow,
    ("doctor", "sessions"): SessionRow,
    ("doctor", "prepared"): PreparedRow,
    ("doctor", "slots"): SlotRow,
    ("doctor", "feedback"): FeedbackRow,
    ("doctor", "budget"): BudgetRow,
    ("doctor", "idle_in_transaction"): SessionRow,
    ("doctor", "notifications"): NotificationsRow,
    ("doctor_queue", "ids"): DrawnRow,
    ("doctor_queue", "dead_ids"): DrawnRow,
    ("doctor_queue", "ready"): ReadyRow,
    ("doctor_queue", "forgotten_pauses"): PausedRow,
    ("doctor_queue", "held_keys"): HeldKeyRow,
    ("doctor_queue", "recent_dead"): RecentDeadRow,
    ("doctor_log", "numbers"): DrawnRow,
    ("doctor_log", "idle_groups"): GroupRow,
    ("doctor_log", "forgotten_group_pauses"): GroupRow,
    ("doctor_log", "parked_heads"): ParkedHeadRow,
}
"""By file and name of the statement."""

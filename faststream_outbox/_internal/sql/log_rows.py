"""The shapes of what statements of the log return. See `rows`.

`log_admin_rows` has those of operators and of retention, which are in `SHAPES` too.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from faststream_outbox._internal.sql import log_admin_rows


class ReadMessage(NamedTuple):
    """A message of a window of the log; `found` is how many the window has, up to the limit, `size` is its bytes.

    The metadata is None where the content was left out because it cannot be read.
    """

    tick: int
    position: int
    uri: str
    slot: int
    payload: str | None
    body: bytes | None
    metadata: str | None
    event_id: UUID | None
    created_at: datetime
    transaction_id: int
    found: int
    size: int


class WaitingMessage(NamedTuple):
    """A message that was deferred, and when it is due."""

    tick: int
    position: int
    uri: str
    slot: int
    payload: str | None
    body: bytes | None
    metadata: str | None
    event_id: UUID | None
    created_at: datetime
    transaction_id: int
    attempts: int
    first_attempt_at: datetime | None
    state: str
    due_in: float | None


class BlockedKey(NamedTuple):
    """A key that waits for its first message, and how many messages of it wait."""

    key: str
    slot: int
    state: str
    due_in: float | None
    waiting: int


class StillDeferred(NamedTuple):
    """A message that is deferred, and how often it has failed."""

    position: int
    state: str
    attempts: int


class GroupSpan(NamedTuple):
    """A span of a group; `is_free` if anybody may take it."""

    lo: int
    hi: int
    tick: int
    position: int
    epoch: int
    owner: UUID | None
    is_free: bool


class NumberedSpan(NamedTuple):
    """A span of one of several groups; `number` is the group's place in the question, from 1 on."""

    number: int
    lo: int
    hi: int
    tick: int
    position: int
    epoch: int
    owner: UUID | None
    is_free: bool


class TakenSpan(NamedTuple):
    """A span that was leased; `died` if its last owner did not give it back, `suspect` what that one had noted."""

    lo: int
    hi: int
    tick: int
    position: int
    epoch: int
    died: bool
    suspect: int | None
    crashes: int


class JoinedSpan(NamedTuple):
    """A span that was made of several."""

    lo: int
    hi: int
    tick: int
    position: int
    epoch: int


class LockedSpan(NamedTuple):
    """Where a cursor stands and under which lease; nothing but `lo` is known while a transaction holds the row."""

    lo: int
    tick: int | None
    position: int | None
    epoch: int | None
    owner: UUID | None
    is_free: bool


class Heartbeat(NamedTuple):
    """How many members of a group live, and whether the one that asks is new."""

    members: int
    is_new: bool


class MemberBeat(NamedTuple):
    """A member that lives, and whether it is new."""

    member: UUID
    is_new: bool


class Census(NamedTuple):
    """How many members of a group live or are dead, and what an operator may have changed, in short."""

    number: int
    members: int
    dead: int
    changes: str


class Appended(NamedTuple):
    """A message that was written."""

    position: int
    event_id: UUID | None


class AppendedWhole(NamedTuple):
    """A message that was written with all others of its call."""

    position: int
    event_id: UUID | None
    is_whole: int


class TickRow(NamedTuple):
    """A tick: its ranges, and how many positions they have."""

    tick: int
    lows: Sequence[int]
    highs: Sequence[int]
    positions: int
    at: datetime


class Database(NamedTuple):
    """Which database this is, and whether the role may know which server."""

    oid: str
    may_know_server: bool


class ProgressRow(NamedTuple):
    """How far numbers were drawn and sequenced; `high` and `tick` are None where there is no head."""

    drawn: int
    high: int | None
    tick: int | None
    oldest_gap: datetime | None
    stray: int | None
    is_ours: bool


class KeptRanges(NamedTuple):
    """The last of some ticks, and which of their positions hold the message that was put into the tick."""

    last: int | None
    lows: Sequence[int]
    highs: Sequence[int]


class HeadLock(NamedTuple):
    """The lock on the head, and how far numbers were drawn by then."""

    head: Any
    drawn: str


class MadeTick(NamedTuple):
    """What a tick has found, and whether it has left something for the next one."""

    tick: int
    positions: int
    high: int
    late: int
    notified: int
    has_more: bool
    has_to_sweep: bool


class AdvancedSequence(NamedTuple):
    """From where to where a sequence was moved."""

    drawn: int
    moved_to: int


SHAPES: Mapping[tuple[str, str], type[tuple[Any, ...]]] = {
    **log_admin_rows.SHAPES,
    ("deferred", "blocked"): BlockedKey,
    ("deferred", "blocked_or_parked"): BlockedKey,
    ("deferred", "fetch_waiting"): WaitingMessage,
    ("deferred", "fetch_deferred"): WaitingMessage,
    ("group", "spans"): GroupSpan,
    ("group", "take_range"): TakenSpan,
    ("group", "join_spans"): JoinedSpan,
    ("group", "spans_still_ours"): LockedSpan,
    ("group", "still_deferred"): StillDeferred,
    ("group", "heartbeat"): Heartbeat,
    ("group", "beat_each"): MemberBeat,
    ("group", "census"): Census,
    ("group", "spans_of_groups"): NumberedSpan,
    ("log", "append"): Appended,
    ("log", "append_one"): Appended,
    ("log", "append_to_partitions"): Appended,
    ("log", "append_whole"): AppendedWhole,
    ("log", "fetch"): ReadMessage,
    ("log", "ticks_after"): TickRow,
    ("tick", "database"): Database,
    ("tick", "progress"): ProgressRow,
    ("tick", "kept"): KeptRanges,
    ("tick", "wait_for_head"): HeadLock,
    ("tick", "tick"): MadeTick,
    ("tick", "advance_sequence"): AdvancedSequence,
}
"""By file and name of the statement."""

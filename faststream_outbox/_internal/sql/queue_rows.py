"""The shapes of what statements of the queue return. See `rows`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID


class ClaimedRow(NamedTuple):
    """A message that was claimed; or, where there was none to claim, only the time."""

    id: Any
    """A number; None where there is no message, and then the rest but the time is None too."""
    queue: str
    payload: bytes
    headers: str | None
    attempts_count: int
    deliveries_count: int
    created_at: datetime
    next_attempt_at: datetime
    first_attempt_at: datetime | None
    last_attempt_at: datetime | None
    timer_id: str | None
    key: str | None
    priority: int
    message_id: UUID
    acquired_at: datetime
    next_id: int | None
    """None: only messages with keys have one that comes next."""


class ClaimedOfKeyRow(NamedTuple):
    """A message of a key that was claimed; or only the key, where it must be asked for again."""

    id: Any
    """A number; None where there is no message."""
    queue: str
    payload: bytes
    headers: str | None
    attempts_count: int
    deliveries_count: int
    created_at: datetime
    next_attempt_at: datetime
    first_attempt_at: datetime | None
    last_attempt_at: datetime | None
    timer_id: str | None
    key: str
    priority: int
    message_id: UUID
    acquired_at: datetime
    next_id: int | None
    """The message of the key that comes after the run."""
    first_id: int | None
    """The first message of the key that was due at once."""
    is_certain: bool
    """Whether nothing can appear before that one."""
    more: int
    """How many messages were seen beyond the run."""


class FoundLaneRow(NamedTuple):
    """The time, and the place of a lane that has a message to claim, from 1 on; None where there is no such lane."""

    server_now: datetime
    n: int | None


class FoundKeyRow(NamedTuple):
    """A due message of a lane, and its key; or, where there is none, only the lane and the time."""

    queue: str
    priority: int
    key: str | None
    next_attempt_at: datetime
    id: int
    server_now: datetime


class LastIdRow(NamedTuple):
    """The last id drawn, None where nobody has drawn one or we may not know; and its sequence."""

    last: int | None
    sequence: str
    may_read: bool | None


class HighestDeadRow(NamedTuple):
    """The highest id that would come back, the last one drawn from the sequence, and whether we may set it."""

    top: int | None
    last: int | None
    sequence: str
    may_set: bool


class DeadLetterRow(NamedTuple):
    """A dead letter."""

    id: int
    original_id: int
    message_id: UUID
    queue: str
    payload: bytes
    headers: str | None
    key: str | None
    priority: int
    timer_id: str | None
    attempts_count: int
    deliveries_count: int
    created_at: datetime
    first_attempt_at: datetime | None
    last_attempt_at: datetime | None
    failed_at: datetime
    failure_reason: str
    last_exception: str | None
    error_type: str | None
    error_message: str | None
    traceback: str | None


class DeadGroupRow(NamedTuple):
    """How many dead letters failed alike, and when the first and the last of them did."""

    queue: str
    failure_reason: str
    error_type: str | None
    letters: int
    first_failed_at: datetime
    last_failed_at: datetime


class ReplayedRow(NamedTuple):
    """A dead letter of a slice, and whether it is back in its queue."""

    id: int
    original_id: int
    queue: str
    is_keyed: bool
    priority: int
    is_back: bool


class PurgedRow(NamedTuple):
    """How many dead letters of a slice were deleted, how many it had, and the last of them."""

    gone: int
    seen: int
    last: int | None


class PurgedLetterRow(NamedTuple):
    """A dead letter that was deleted."""

    queue: str
    is_keyed: bool


class PublishedRow(NamedTuple):
    """A message that was written where some have a timer_id."""

    id: int
    queue: str
    timer_id: str | None


class UnprocessedRow(NamedTuple):
    """A message as it stands in the table."""

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


class LaneRow(NamedTuple):
    """A lane that has messages."""

    queue: str
    keyed: bool
    priority: int


class ClaimableRow(NamedTuple):
    """The place of the lane that was asked for, from 1 on, and a message of it that could be claimed."""

    n: int
    id: int
    next_attempt_at: datetime


class ClaimableKeyRow(NamedTuple):
    """The place of the lane that was asked for, from 1 on, and a key of it; or whether the lane may have more."""

    n: int
    key: str | None
    priority: int
    has_more: bool
    id: int
    """The head of the key."""


class WalkedKeyRow(NamedTuple):
    """A key, and whether its head could be claimed; priority and id of the head, if it has one."""

    key: str
    is_claimable: bool
    priority: int
    id: int


class NextDueRow(NamedTuple):
    """A lane, and in how many seconds its next message falls due."""

    queue: str
    priority: int
    keyed: bool
    due_in: float


class DrawnIdsRow(NamedTuple):
    """When the server began, the last id drawn, and the transactions that may have drawn one and not ended."""

    server: datetime
    drawn: int | None
    writers: Sequence[str]


class RetriedRow(NamedTuple):
    """A message that is tried again, and when."""

    id: int
    next_attempt_at: datetime


class RenewedRow(NamedTuple):
    """A lease that stands, and whether it began anew: not so while a transaction holds the message."""

    id: int
    is_renewed: bool
    has_run_out: bool
    """It has a key and ended before it could be renewed: nothing of its run may begin any more."""


class RemainingRow(NamedTuple):
    """A message that is still in the table, and whether somebody holds it."""

    id: int
    is_held: bool


class OldestOfQueue(NamedTuple):
    """For how long the oldest message of a queue waits."""

    queue: str
    seconds: float


SHAPES: Mapping[tuple[str, str], type[tuple[Any, ...]]] = {
    ("claim", "claim"): ClaimedRow,
    ("claim", "claim_found"): ClaimedRow,
    ("claim", "find_lanes"): FoundLaneRow,
    ("control", "last_id"): LastIdRow,
    ("dead", "group_dead"): DeadGroupRow,
    ("dead", "group_selected"): DeadGroupRow,
    ("dead", "highest_dead"): HighestDeadRow,
    ("dead", "list_dead"): DeadLetterRow,
    ("dead", "purge_dead"): PurgedLetterRow,
    ("dead", "purge_old"): PurgedRow,
    ("dead", "replay"): ReplayedRow,
    ("keys", "claim_keys"): ClaimedOfKeyRow,
    ("keys", "find_keys"): FoundKeyRow,
    ("publish", "publish_new_timers"): PublishedRow,
    ("publish", "publish_timers"): PublishedRow,
    ("publish", "unprocessed"): UnprocessedRow,
    ("publish", "unprocessed_of_queue"): UnprocessedRow,
    ("scan", "claimable"): ClaimableRow,
    ("scan", "claimable_keys"): ClaimableKeyRow,
    ("scan", "drawn_ids"): DrawnIdsRow,
    ("scan", "next_due"): NextDueRow,
    ("scan", "survey"): LaneRow,
    ("scan", "walk_keys"): WalkedKeyRow,
    ("settle", "remains"): RemainingRow,
    ("settle", "renew"): RenewedRow,
    ("settle", "settle_retry"): RetriedRow,
    ("relay", "oldest_of_queues"): OldestOfQueue,
}
"""By file and name of the statement."""

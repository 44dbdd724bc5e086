"""The shapes of what operators and retention ask a log for. See `rows`; `log_rows` has those of reading."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID


class DeferredRow(NamedTuple):
    """A message that waits in a group, as operators see it; its columns of the log are None where it is deleted."""

    consumer_group: str
    uri: str
    position: int
    tick: int
    slot: int
    key: str
    state: str
    attempts: int
    due: datetime | None
    first_attempt_at: datetime | None
    updated_at: datetime
    error_type: str | None
    error_message: str | None
    traceback: str | None
    payload: str | None
    body: bytes | None
    metadata: str | None
    created_at: datetime | None
    transaction_id: int | None


class GroupName(NamedTuple):
    """A group and what it reads."""

    consumer_group: str
    uri: str


class ListedGroup(NamedTuple):
    """A group as it is, for operators."""

    consumer_group: str
    uri: str
    members: int
    slots: int
    paused_since: datetime | None
    last_seen: datetime | None
    parked: int
    deferred: int
    retrying: int
    has_more: bool


class DeletedOfGroup(NamedTuple):
    """Whether a group may be deleted, and how many of its deferred messages are gone."""

    may: bool
    gone: int


class LowWater(NamedTuple):
    """How far a group has come everywhere, and the last message before that."""

    tick: int
    position: int
    last_position: int
    transaction_id: int


class TickGuess(NamedTuple):
    """The tick that a position is probably in, and the first and the last that there are."""

    guess: int
    first: int
    last: int


class Place(NamedTuple):
    """A place in the log."""

    tick: int
    position: int


class GroupLocks(NamedTuple):
    """Locks that were taken; there is nothing to read in them."""

    retention: Any
    spans: Any


class Sought(NamedTuple):
    """A span that was put elsewhere, and the call that says so."""

    lo: int
    called: Any


class LagRow(NamedTuple):
    """What a span has not read; `slots`, `counts` and `seconds` belong together."""

    consumer_group: str
    uri: str
    lo: int
    hi: int
    tick: int
    position: int
    owner: UUID | None
    leased_until: datetime | None
    updated_at: datetime
    is_all: bool
    looked_at: int
    beyond: int
    is_counted: bool
    last_seconds: float
    slots: Sequence[int]
    counts: Sequence[int]
    seconds: Sequence[float]


class Slowest(NamedTuple):
    """The place of the slowest living group, and from where on messages stay whatever later ticks have."""

    tick: int
    position: int
    first_kept: int


class LowestUnread(NamedTuple):
    """The smallest position of some ticks, the last of these, and how many they are."""

    lowest: int | None
    last: int | None
    ticks: int


class DeadGroup(NamedTuple):
    """A group that was not heard of for `idle` seconds."""

    consumer_group: str
    uri: str
    idle: float


class DeletedSlice(NamedTuple):
    """Whether a slice may go, how many messages went, were old and were seen, the last of them, and the first kept."""

    may: bool
    gone: int
    old: int
    seen: int
    last: int | None
    kept: int | None


class DeletedTicks(NamedTuple):
    """How many ticks went and were seen, and the last of them."""

    gone: int
    seen: int
    last: int | None


class OwnerRow(NamedTuple):
    """How many slots the members of a worker id hold."""

    worker_id: str
    slots: int


SHAPES: Mapping[tuple[str, str], type[tuple[Any, ...]]] = {
    ("deferred", "list_deferred"): DeferredRow,
    ("deferred", "list_deferred_of_group"): DeferredRow,
    ("group_admin", "list_groups"): ListedGroup,
    ("group_admin", "paused_groups"): GroupName,
    ("group_admin", "delete_waiting"): DeletedOfGroup,
    ("group_admin", "delete_group"): DeletedOfGroup,
    ("group_admin", "slots_by_owner"): OwnerRow,
    ("position", "low_water"): LowWater,
    ("position", "groups"): GroupName,
    ("position", "guess_tick"): TickGuess,
    ("position", "place_of_pair"): Place,
    ("position", "place_before"): Place,
    ("position", "last_place"): Place,
    ("position", "lock_group"): GroupLocks,
    ("position", "seek"): Sought,
    ("position", "lag"): LagRow,
    ("retention", "slowest"): Slowest,
    ("retention", "lowest_unread"): LowestUnread,
    ("retention", "dead_groups"): DeadGroup,
    ("retention", "delete_slice"): DeletedSlice,
    ("retention", "delete_ticks"): DeletedTicks,
}
"""By file and name of the statement."""

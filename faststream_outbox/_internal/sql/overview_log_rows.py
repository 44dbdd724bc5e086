"""The shapes of what the overview asks a log for. See `rows`."""

from datetime import datetime
from typing import NamedTuple


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

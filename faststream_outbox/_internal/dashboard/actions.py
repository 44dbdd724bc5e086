"""What an operator may do with the dashboard, by the names that `can(user, action)` decides about, and for how long."""

from collections.abc import Mapping
from enum import StrEnum


class Action(StrEnum):
    """One thing that a user may be allowed to do."""

    READ = "read"
    """See the screens: names, counts, ages, errors."""
    READ_BODY = "read_body"
    """See bodies and headers of messages, as far as the redactor leaves them."""
    REPLAY = "replay"
    """Put dead letters back into their queues, and cancel that."""
    EDIT = "edit"
    """Change the body or the headers of a dead letter; needs `read_body` too."""
    PURGE = "purge"
    """Delete dead letters for good."""
    PAUSE_QUEUE = "pause_queue"
    """Pause a queue in every process, and resume it."""
    CANCEL_TIMER = "cancel_timer"
    """Take a timer back before it fires."""
    PAUSE_GROUP = "pause_group"
    """Pause a group in every process, and resume it."""
    SEEK_GROUP = "seek_group"
    """Put a group elsewhere in its topic."""
    DELETE_GROUP = "delete_group"
    """Forget a group, its place and what it has deferred."""
    RETRY_PARKED = "retry_parked"
    """Let parked messages run again."""
    SKIP_DEFERRED = "skip_deferred"
    """End messages that wait, without handling them."""


READING = frozenset({Action.READ, Action.READ_BODY})
"""What changes nothing: all that is left in read-only mode."""

TIME_LIMITS: Mapping[Action, float] = {
    Action.REPLAY: 15.0,
    Action.EDIT: 15.0,
    Action.PURGE: 120.0,
    Action.PAUSE_QUEUE: 15.0,
    Action.CANCEL_TIMER: 15.0,
    Action.PAUSE_GROUP: 15.0,
    Action.SEEK_GROUP: 60.0,
    Action.DELETE_GROUP: 60.0,
    Action.RETRY_PARKED: 60.0,
    Action.SKIP_DEFERRED: 15.0,
}
"""Seconds that a form may take before it is stopped; a replay goes on behind its form, for as long as it needs."""

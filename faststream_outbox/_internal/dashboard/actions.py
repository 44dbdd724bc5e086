"""What an operator may do with the dashboard, who did what, and what a dashboard was made with.

`Action` has the names that `can(user, action)` decides about; each has a time limit. Every action and every refusal is
one record, whatever came of it, for the log and for a hook of yours. The log line has its fields apart too (`extra`),
for log processors. A hook that raises stops nothing: the action has happened. `Options` are checked once. Used by
`dashboard` for each request, and by every screen.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from string import Formatter
from typing import Any, Literal
from urllib.parse import urlsplit

from faststream_outbox._internal.dashboard.content import Redact
from faststream_outbox._internal.options import check_seconds, check_text
from faststream_outbox._internal.overview.queues import OLD_SECONDS
from faststream_outbox.errors import InvalidOption


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


logger = logging.getLogger("faststream_outbox.dashboard")

Outcome = Literal["done", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Audit:
    """One action of one user."""

    at: datetime
    user: str
    action: Action
    target: Mapping[str, object]
    """What it was about: queue, group, ids …"""
    outcome: Outcome
    """"refused": the user may not. "failed": it was tried."""
    detail: str
    """What came of it, in a sentence."""
    client: str | None
    """The address that the request came from."""


OnAction = Callable[[Audit], object | Awaitable[object]]


async def write(audit: Audit, hook: OnAction | None) -> None:
    """Log a record, and give it to the hook."""
    level = logging.INFO if audit.outcome == "done" else logging.WARNING
    target = " ".join(f"{name}={value!r}" for name, value in audit.target.items())
    # Written by users and strangers: as a repr they cannot begin a line of their own.
    logger.log(
        level,
        "%r: %s %s: %s (%r)",
        audit.user,
        audit.action.value,
        target,
        audit.outcome,
        audit.detail,
        extra={
            "outbox_user": audit.user,
            "outbox_action": audit.action.value,
            "outbox_target": dict(audit.target),
            "outbox_outcome": audit.outcome,
            "outbox_detail": audit.detail,
            "outbox_client": audit.client,
        },
    )
    if hook is None:
        return
    try:
        answer = hook(audit)
        if inspect.isawaitable(answer):
            await answer
    except Exception:
        logger.exception("on_action raised; the action had happened: %s", audit.outcome)


Can = Callable[[Any, Action], bool | Awaitable[bool]]
"""Whether a user may do something."""

TRACE_FIELDS = ("trace_id", "span_id", "correlation_id", "message_id", "queue", "key")


@dataclass(frozen=True, slots=True)
class Options:
    """Of one dashboard."""

    title: str = "Outbox"
    read_only: bool = False
    can: Can | None = None
    redact: Redact | None = None
    on_action: OnAction | None = None
    trace_url: str | None = None
    late_after: float = OLD_SECONDS
    """Seconds after which a message that waits is shown in red."""

    def __post_init__(self) -> None:
        check_seconds("late_after", self.late_after)
        if self.trace_url is not None:
            check_text("trace_url", self.trace_url)
            _check_template(self.trace_url)


def _check_template(template: str) -> None:
    try:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError as error:
        msg = f"trace_url is no template: {error}."
        raise InvalidOption(msg) from None
    if names - set(TRACE_FIELDS) or not names:
        msg = f"trace_url takes the fields {', '.join(TRACE_FIELDS)}, e.g. 'https://traces.example/{{trace_id}}'."
        raise InvalidOption(msg)
    parts = urlsplit(template)
    if parts.scheme not in ("http", "https") or not parts.netloc or "{" in parts.netloc:
        msg = f"trace_url must begin with http:// or https:// and a host, not {template!r}."
        raise InvalidOption(msg)

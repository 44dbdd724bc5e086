"""Who did what: one record for each action, whatever came of it, in the log and for a hook of yours.

The log line has its fields apart too (`extra`), for log processors. A hook that raises stops nothing: the action has
happened. Written by `dashboard` after every action and every refusal.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from faststream_outbox._internal.dashboard.actions import Action

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

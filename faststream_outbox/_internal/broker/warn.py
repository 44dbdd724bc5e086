"""Warnings about likely mistakes, attributed to the line that the user wrote."""

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faststream

from faststream_outbox._internal.outcomes.retry import NoRetry
from faststream_outbox._internal.queue.options import WorkerOptions
from faststream_outbox.errors import OutboxWarning

_OURS = tuple(f"{home}{os.sep}" for home in (Path(__file__).parents[2], Path(faststream.__file__).parent))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's, to point at later."""

    filename: str
    number: int
    module: str
    registry: dict[Any, Any]


def users_line() -> Line:
    """The line of the first frame outside of this package and of FastStream."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    known = frame.f_globals
    registry: dict[Any, Any] = known.setdefault("__warningregistry__", {})
    return Line(frame.f_code.co_filename, frame.f_lineno, str(known.get("__name__", "")), registry)


def warn(message: str, line: Line | None = None) -> None:
    """Warn, pointing at the line given, or at the one that is running."""
    at = line or users_line()
    warnings.warn_explicit(
        message, OutboxWarning, at.filename, at.number, module=at.module or None, registry=at.registry
    )


NO_DEAD_LETTERS = (
    "The broker has no dlq_table: a message that fails for good is deleted, with what it said and why it failed. "
    "Keep it with OutboxBroker(…, dlq_table=make_dlq_table(metadata)), or write dlq_table=None if it may go."
)


def warn_about_options(
    options: WorkerOptions, *, has_strategy: bool, policy: str, is_explicit: bool, reads_topic: bool
) -> None:
    """Combinations that work but are seldom meant."""
    no_retry = isinstance(options.retry_strategy, NoRetry)
    if policy == "reject_on_error" and has_strategy:
        warn("REJECT_ON_ERROR never retries: the retry_strategy of this subscriber is ignored.")
    if policy == "nack_on_error" and is_explicit and no_retry:
        warn("NACK_ON_ERROR with NoRetry() drops on the first failure; REJECT_ON_ERROR says so more plainly.")
    if options.max_deliveries is not None and no_retry:
        warn("max_deliveries has little effect with NoRetry(): a failure is final anyway.")
    if options.lease_ttl_seconds <= options.max_fetch_interval and not reads_topic:
        warn(
            f"lease_ttl_seconds={options.lease_ttl_seconds:g} is not above max_fetch_interval="
            f"{options.max_fetch_interval:g}: messages of a crashed worker are found later than their lease says."
        )


def warn_about_manual_handler(handler: Callable[..., Any], *, at_handler: bool = False) -> None:
    """A bare `msg` parameter is a field of the body to FastStream, not the message."""
    try:
        parameter = inspect.signature(handler).parameters.get("msg")
    except (TypeError, ValueError):
        return
    if parameter is not None and parameter.annotation is inspect.Parameter.empty:
        message = (
            f"{getattr(handler, '__name__', handler)!s}: with AckPolicy.MANUAL the parameter 'msg' has no annotation, "
            "so FastStream reads it from the body. Write `msg: OutboxMessage` "
            "(from faststream_outbox.annotations import OutboxMessage)."
        )
        if at_handler:
            _warn_at(handler, message)
        else:
            warn(message)


def warn_about_publisher(handler: Callable[..., Any], what: str) -> None:
    """A publisher of another broker on a handler of ours that loses messages; attributed to the handler's line."""
    name = getattr(handler, "__name__", str(handler))
    _warn_at(handler, f"{name} forwards to another broker and may lose messages: {what}.")


def warn_about_shared(names: Iterable[str], group: str | None, others: Iterable[Any]) -> None:
    """Two subscribers of one queue, or of one topic in one group: each message goes to one of them."""
    taken = {
        name for other in others if getattr(other, "group", None) == group for name in getattr(other, "queues", ())
    }
    for name in sorted(taken & {*names}):
        if group is None:
            warn(
                f"Queue {name!r} has two subscribers in this process: a message goes to one of them, not to both. "
                "Give them queues of their own, or one subscriber with more max_workers."
            )
        else:
            warn(
                f"Group {group!r} reads topic {name!r} with two subscribers in this process: a message goes to "
                "one of them, not to both. Give them groups of their own, or one subscriber with more max_workers."
            )


def warn_about_late_decision(what: str) -> None:
    """A decision on a message whose handler has returned without one; attributed to the line that decides."""
    warn(
        f"{what} came after the handler had returned without a decision: the message was settled as on_undecided says, "
        "and this changes nothing. Decide before the handler returns: it may await its tasks."
    )


def _warn_at(handler: Callable[..., Any], message: str) -> None:
    code = getattr(inspect.unwrap(handler), "__code__", None)
    if code is None:
        warn(message)
    else:
        warnings.warn_explicit(message, OutboxWarning, code.co_filename, code.co_firstlineno, registry=_SHOWN)


_SHOWN: dict[Any, Any] = {}
"""What was warned about, so that a restart does not repeat it."""

"""The log as a listener: what an operator must see, and nothing per message that goes well.

A trouble that lasts is said when it begins and again after ever longer times, and that it is over is said once. A
record is one line, whatever names and errors hold, and has no part of a message in it; only a traceback comes below.
The event's fields come along as `outbox_…`, for logs that are searched by machines.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from time import monotonic
from typing import Any, Protocol

from faststream_outbox._internal import events
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.lines import Noteworthy, Say, entry
from faststream_outbox._internal.events.repeats import Repeats
from faststream_outbox._internal.schema.line import one_line
from faststream_outbox._internal.sql.secrets import hide_parameters, said

MOST_ITEMS = 20
"""Of a field that is a list, no more than these go into a record."""


class Log(Protocol):
    """What is written to: a logger of Python's, or of a broker."""

    def log(self, level: int, msg: Any, /, *, exc_info: Any = None, extra: Mapping[str, Any] | None = None) -> None:
        """Write a record."""


def extra_of(event: Noteworthy, say: Say = said) -> dict[str, Any]:
    """An event as fields of a record. Its error is the type and what may be said of it."""
    record: dict[str, Any] = {"outbox_event": type(event).__name__}
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, BaseException):
            record["outbox_error_type"] = type(value).__name__
            record["outbox_error"] = one_line(say(value))
            if (state := _sqlstate(value)) is not None:
                record["outbox_sqlstate"] = state
        elif isinstance(value, str):
            record[f"outbox_{field.name}"] = one_line(value)
        elif isinstance(value, tuple):
            record[f"outbox_{field.name}"] = [
                one_line(item) if isinstance(item, str) else item for item in value[:MOST_ITEMS]
            ]
        elif value is not None:
            record[f"outbox_{field.name}"] = value
    return record


def _sqlstate(error: BaseException) -> str | None:
    state = getattr(error, "sqlstate", None)
    return state if isinstance(state, str) else None


def _kind(error: BaseException | None) -> Hashable:
    return type(error), None if error is None else _sqlstate(error)


def trouble_of(event: Noteworthy) -> tuple[Hashable, Hashable] | None:
    """What lasts until somebody says that it is over, and in which way; None for what happens once."""
    match event:
        case events.ConnectionLost(role=role, error=error):
            return (events.ConnectionLost, role), _kind(error)
        case events.ListenerLost(channel=channel, error=error):
            return (events.ListenerLost, channel), _kind(error)
        case events.ListenerDeaf(channel=channel):
            return (events.ListenerLost, channel), "deaf"
        case events.RelayDown(relay=relay, transport=transport, error=error):
            return (events.RelayDown, relay, transport), _kind(error)
        case events.LoopCrashed(name=name, error=error):
            return (events.LoopCrashed, name), _kind(error)
        case events.SchemaDiffers(problems=problems):
            return events.SchemaDiffers, problems
        case events.GapOld(log=log):
            return (events.GapOld, log), None
        case _:
            return None


def end_of(event: Noteworthy) -> Hashable | None:
    """Which trouble is over; None if it tells of no end."""
    match event:
        case events.ConnectionRestored(role=role):
            return events.ConnectionLost, role
        case events.ListenerReady(channel=channel):
            return events.ListenerLost, channel
        case events.RelayUp(relay=relay, transport=transport):
            return events.RelayDown, relay, transport
        case events.LoopRestored(name=name):
            return events.LoopCrashed, name
        case events.SchemaFits():
            return events.SchemaDiffers
        case events.GapClosed(log=log):
            return events.GapOld, log
        case _:
            return None


def write_event_log(emitter: Events, logger: Log, say: Say = said) -> Callable[[], None]:
    """Write noteworthy events to `logger`, and of errors what `say` makes of them; returns what undoes it."""

    repeats = Repeats()

    def write(event: Noteworthy) -> None:
        now = monotonic()
        trouble = trouble_of(event)
        if trouble is not None and not repeats.is_news(*trouble, now):
            return
        end = end_of(event)
        # That a listener hears is news only where it did not before.
        if end is not None and repeats.over(end, now) is None and isinstance(event, events.ListenerReady):
            return
        level, text, error = entry(event, say)
        if error is not None and say is not said:
            # A traceback ends with the error's own text.
            text, error = f"{text} {say(error)}", None
        hide_parameters(error)
        # A name may hold a percent sign, which is none of a format's: there are no arguments.
        logger.log(level, one_line(text), exc_info=error, extra=extra_of(event, say))

    return emitter.subscribe(write, *Noteworthy.__args__)


__all__ = ["Log", "end_of", "extra_of", "trouble_of", "write_event_log"]

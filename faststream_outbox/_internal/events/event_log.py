"""The log as a listener: what an operator must see, in a sentence each, and nothing per message that goes well.

An event is noteworthy or quiet, and a type checker sees to it that none is forgotten. A trouble that lasts is said when
it begins and again after ever longer times, and that it is over is said once. A record is one line, whatever names and
errors hold, and has no part of a message in it; only a traceback comes below. The event's fields come along as
`outbox_…`, for logs that are searched by machines. Given its events by the clients of both engines and by the inbox.
"""

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from time import monotonic
from typing import Any, Protocol, assert_never

from faststream_outbox._internal import events
from faststream_outbox._internal.connections.cause import hide_parameters, said
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.outage import Repeats
from faststream_outbox._internal.text import one_line

__all__ = [
    "Log",
    "end_of",
    "extra_of",
    "trouble_of",
    "write_event_log",
]


Noteworthy = (
    events.Died
    | events.LeaseWasLost
    | events.Abandoned
    | events.OutcomeRefused
    | events.MessageSetApart
    | events.HookFailed
    | events.DrainTimedOut
    | events.StillRunning
    | events.LoopCrashed
    | events.LoopRestored
    | events.GapOld
    | events.GapClosed
    | events.SequenceAdvanced
    | events.KeyHalted
    | events.GroupExpired
    | events.MessagesMissed
    | events.LogCleaned
    | events.PartitionsMade
    | events.DeadLettersPurged
    | events.ReceiptsCleaned
    | events.ChoreFailed
    | events.ChoreRestored
    | events.RelayDown
    | events.RelayUp
    | events.SchemaDiffers
    | events.SchemaFits
    | events.StatementFailed
    | events.StatementWorks
    | events.ListenerLost
    | events.ListenerDeaf
    | events.ListenerReady
)
Quiet = (
    events.Published
    | events.Claimed
    | events.Started
    | events.Handled
    | events.Retried
    | events.Released
    | events.LeasesRenewed
    | events.Ticked
    | events.SlotsHeld
    | events.Relayed
    | events.Received
    | events.DuplicateSkipped
    | events.DeliveryHeldUp
    | events.ResponseReplayed
)
"""What goes well or is too frequent for the log. An event is in one of the two lists."""

Say = Callable[[BaseException | None], str]
"""What is printed of an error."""


def entry(event: Noteworthy, say: Say = said) -> tuple[int, str, BaseException | None]:
    """Level, text and traceback of the log record for an event."""
    match event:
        case events.Died(queue=queue, id=id_, reason=reason, kept=kept, error=error):
            fate = "kept for an operator" if kept else "deleted"
            return (
                logging.ERROR,
                f"Message {id_} of {queue!r} failed for good ({reason}); {fate}: {say(error)}",
                None,
            )
        case events.LeaseWasLost(queue=queue, id=id_, phase=phase):
            return logging.WARNING, f"Lease of message {id_} of {queue!r} was lost while {phase}.", None
        case events.Abandoned(queue=queue, id=id_):
            return (
                logging.WARNING,
                f"Message {id_} of {queue!r} is left leased; it comes again when that ends.",
                None,
            )
        case events.OutcomeRefused(queue=queue, id=id_, error=error):
            text = f"The outcome of message {id_} of {queue!r} was refused; it is set apart in the outbox: {say(error)}"
            return logging.ERROR, text, None
        case events.MessageSetApart(queue=queue, id=id_, error=error):
            text = f"Message {id_} of {queue!r} cannot be fetched; it is set apart in the outbox: {say(error)}"
            return logging.ERROR, text, None
        case events.HookFailed(hook=hook, error=error):
            return logging.ERROR, f"{hook} raised.", error
        case events.DrainTimedOut(worker=worker, seconds=seconds, running=running):
            return (
                logging.WARNING,
                f"{worker}: {running} handlers cancelled after {seconds:g} s of stopping.",
                None,
            )
        case events.StillRunning(worker=worker, running=running):
            text = f"{worker}: {running} handlers run on after they were cancelled; their messages stay leased."
            return logging.WARNING, text, None
        case events.LoopCrashed(name=name, error=error):
            return logging.ERROR, f"{name} crashed; it starts again.", error
        case events.LoopRestored(name=name, outage_seconds=seconds):
            return logging.INFO, f"{name} runs again after {seconds:.1f} s.", None
        case (
            events.GapOld()
            | events.GapClosed()
            | events.SequenceAdvanced()
            | events.KeyHalted()
            | events.GroupExpired()
            | events.MessagesMissed()
        ):
            return *_of_log(event), None
        case events.LogCleaned() | events.PartitionsMade() | events.DeadLettersPurged() | events.ReceiptsCleaned():
            return logging.INFO, _of_upkeep(event), None
        case events.ChoreFailed(chore=chore, error=error, retry_seconds=seconds):
            text = f"Keeping order failed ({chore}): {say(error)}. {_advice(error)}Trying again in {seconds:g} s."
            return logging.ERROR, text, None
        case events.ChoreRestored(chore=chore, outage_seconds=seconds):
            return logging.INFO, f"Keeping order works again ({chore}) after {seconds:.0f} s.", None
        case events.SchemaDiffers(problems=problems):
            text = (
                f"The database is not as this version needs it: {'; '.join(problems)}. Run your migrations "
                "(`alembic upgrade head`, docs/migrating.md); `broker.validate_schema()` prints what is to be done."
            )
            return logging.ERROR, text, None
        case events.SchemaFits():
            return logging.INFO, "The database is as this version needs it.", None
        case events.RelayDown(relay=relay, transport=transport, error=error):
            text = f"{relay}: {transport} does not answer: {say(error)}. Messages wait; none counts as an attempt."
            return logging.WARNING, text, None
        case events.RelayUp(relay=relay, transport=transport, outage_seconds=seconds):
            return logging.INFO, f"{relay}: {transport} answers again after {seconds:.1f} s.", None
        case events.StatementFailed(role=role, error=error):
            return logging.WARNING, f"`{role}` failed: {say(error)}. {_advice(error)}Trying again.", None
        case events.StatementWorks(role=role, outage_seconds=seconds):
            return logging.INFO, f"`{role}` works again after {seconds:.1f} s.", None
        case events.ListenerLost(channel=channel, error=error):
            return logging.WARNING, f"LISTEN on {channel!r} ended: {say(error)}. Polling until it is back.", None
        case events.ListenerDeaf(channel=channel):
            text = f"LISTEN on {channel!r} hears nothing (a pooler in transaction mode?). Polling; set listen_dsn."
            return logging.WARNING, text, None
        case events.ListenerReady(channel=channel):
            return logging.INFO, f"LISTEN on {channel!r} hears again.", None
        case _:
            assert_never(event)


_MISSING = (
    "A table or a column is missing: run your migrations (`alembic upgrade head`, docs/migrating.md); "
    "`broker.validate_schema()` lists what differs. "
)
_ADVICE = {
    "42P01": _MISSING,
    "42703": _MISSING,
    "42501": "The role lacks a right: GRANT it those of a worker, or of a consumer, in docs/security.md. ",
}


def _advice(error: BaseException) -> str:
    """What to do about an error that trying again will not help; by SQLSTATE, which every driver has."""
    return _ADVICE.get(str(getattr(error, "sqlstate", "")), "")


def _of_log(
    event: events.GapOld
    | events.GapClosed
    | events.SequenceAdvanced
    | events.KeyHalted
    | events.GroupExpired
    | events.MessagesMissed,
) -> tuple[int, str]:
    match event:
        case events.GapOld(log=log, age_seconds=age, sessions=sessions):
            who = ", ".join(sessions) or "no session that shows"
            return logging.WARNING, f"A publisher of {log!r} has not committed for {age:.0f} s. It may be pid {who}."
        case events.GapClosed(log=log, age_seconds=age):
            return logging.INFO, f"The publisher of {log!r} that had not committed for {age:.0f} s has ended."
        case events.SequenceAdvanced(log=log, before=before, after=after):
            text = f"The sequence of {log!r} stood at {before}, behind its messages; it was moved to {after}."
            return logging.ERROR, text
        case events.KeyHalted(group=group, key=key, waiting=waiting):
            text = f"{waiting} messages of {key!r} wait in group {group!r}; its slot stops until the first is settled."
            return logging.ERROR, text
        case events.GroupExpired(group=group, uri=uri, idle_seconds=idle):
            text = f"Group {group!r} ({uri or 'every uri'}) has not read for {idle / 86400:.1f} days and keeps nothing."
            return logging.ERROR, text
        case events.MessagesMissed(group=group, uri=uri, positions=positions):
            text = f"{len(positions)} messages that waited in group {group!r} ({uri or 'every uri'}) are deleted."
            return logging.ERROR, text


def _of_upkeep(
    event: events.LogCleaned | events.PartitionsMade | events.DeadLettersPurged | events.ReceiptsCleaned,
) -> str:
    match event:
        case events.LogCleaned(log=log, messages=messages, ticks=ticks, partitions=partitions):
            return f"Deleted {messages} messages, {ticks} ticks and {partitions} partitions of {log!r}: old and read."
        case events.PartitionsMade(log=log, names=names):
            return f"Made partitions of {log!r}: {', '.join(names)}."
        case events.DeadLettersPurged(table=table, count=count):
            return f"Deleted {count} dead letters of {table!r} that were old enough."
        case events.ReceiptsCleaned(table=table, count=count):
            return f"Deleted {count} receipts of {table!r} that were old enough."


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
        case events.StatementFailed(role=role, error=error):
            return (events.StatementFailed, role), _kind(error)
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
        case events.StatementWorks(role=role):
            return events.StatementFailed, role
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

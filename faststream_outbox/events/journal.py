"""The log as a listener: what an operator must see, and nothing per message that goes well.

An outage that goes on is said once, and again after ever longer times. A record is one line, whatever names and
errors hold, and has no part of a message in it; only a traceback comes below.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import assert_never

from faststream_outbox.events import Events
from faststream_outbox.events import table as told
from faststream_outbox.events.repeats import Repeats
from faststream_outbox.schema.line import one_line
from faststream_outbox.sql.secrets import hide_parameters, said

Noteworthy = (
    told.Died
    | told.LeaseLost
    | told.Abandoned
    | told.OutcomeRefused
    | told.MessageSetApart
    | told.HookFailed
    | told.DrainTimedOut
    | told.StillRunning
    | told.LoopCrashed
    | told.GapOld
    | told.SequenceAdvanced
    | told.KeyHalted
    | told.GroupExpired
    | told.MessagesMissed
    | told.ConnectionLost
    | told.ConnectionRestored
    | told.ListenerLost
    | told.ListenerDeaf
)


Say = Callable[[BaseException | None], str]
"""What is printed of an error."""


def entry(event: Noteworthy, say: Say = said) -> tuple[int, str, BaseException | None]:
    """Level, text and traceback of the log record for an event."""
    match event:
        case told.Died(queue=queue, id=id_, reason=reason, kept=kept, error=error):
            fate = "kept for an operator" if kept else "deleted"
            return (
                logging.ERROR,
                f"Message {id_} of {queue!r} failed for good ({reason}); {fate}: {say(error)}",
                None,
            )
        case told.LeaseLost(queue=queue, id=id_, phase=phase):
            return logging.WARNING, f"Lease of message {id_} of {queue!r} was lost while {phase}.", None
        case told.Abandoned(queue=queue, id=id_):
            return (
                logging.WARNING,
                f"Message {id_} of {queue!r} is left leased; it comes again when that ends.",
                None,
            )
        case told.OutcomeRefused(queue=queue, id=id_, error=error):
            text = f"The outcome of message {id_} of {queue!r} was refused; it is parked in the outbox: {say(error)}"
            return logging.ERROR, text, None
        case told.MessageSetApart(queue=queue, id=id_, error=error):
            text = f"Message {id_} of {queue!r} cannot be fetched; it is parked in the outbox: {say(error)}"
            return logging.ERROR, text, None
        case told.HookFailed(hook=hook, error=error):
            return logging.ERROR, f"{hook} raised.", error
        case told.DrainTimedOut(worker=worker, seconds=seconds, running=running):
            return (
                logging.WARNING,
                f"{worker}: {running} handlers cancelled after {seconds:g} s of stopping.",
                None,
            )
        case told.StillRunning(worker=worker, running=running):
            text = f"{worker}: {running} handlers run on after they were cancelled; their messages stay leased."
            return logging.WARNING, text, None
        case told.LoopCrashed(name=name, error=error):
            return logging.ERROR, f"{name} crashed; it starts again.", error
        case told.GapOld() | told.SequenceAdvanced() | told.KeyHalted() | told.GroupExpired() | told.MessagesMissed():
            return *_of_log(event), None
        case told.ConnectionLost(role=role, error=error):
            return logging.WARNING, f"Connection for {role} failed: {say(error)}. {_advice(error)}Trying again.", None
        case told.ConnectionRestored(role=role, outage_seconds=seconds):
            return logging.INFO, f"Connection for {role} works again after {seconds:.1f} s.", None
        case told.ListenerLost(channel=channel, error=error):
            return logging.WARNING, f"LISTEN on {channel!r} ended: {say(error)}. Polling until it is back.", None
        case told.ListenerDeaf(channel=channel):
            text = f"LISTEN on {channel!r} hears nothing (a pooler in transaction mode?). Polling; set listen_dsn."
            return logging.WARNING, text, None
        case _:
            assert_never(event)


_MISSING = "A table or a column is missing: run your migrations; `broker.validate_schema()` lists what differs. "
_ADVICE = {
    "42P01": _MISSING,
    "42703": _MISSING,
    "42501": "The role lacks a right: GRANT it those of a worker, or of a consumer, in docs/security.md. ",
}


def _advice(error: BaseException) -> str:
    """What to do about an error that trying again will not help; by SQLSTATE, which every driver has."""
    return _ADVICE.get(str(getattr(error, "sqlstate", "")), "")


def _of_log(
    event: told.GapOld | told.SequenceAdvanced | told.KeyHalted | told.GroupExpired | told.MessagesMissed,
) -> tuple[int, str]:
    match event:
        case told.GapOld(log=log, age_seconds=age, sessions=sessions):
            who = ", ".join(sessions) or "no session that shows"
            return logging.WARNING, f"A publisher of {log!r} has not committed for {age:.0f} s. It may be pid {who}."
        case told.SequenceAdvanced(log=log, before=before, after=after):
            text = f"The sequence of {log!r} stood at {before}, behind its messages; it was moved to {after}."
            return logging.ERROR, text
        case told.KeyHalted(group=group, key=key, waiting=waiting):
            text = f"{waiting} messages of {key!r} wait in group {group!r}; its slot stops until the first is settled."
            return logging.ERROR, text
        case told.GroupExpired(group=group, uri=uri, idle_seconds=idle):
            text = f"Group {group!r} ({uri or 'every uri'}) has not read for {idle / 86400:.1f} days and keeps nothing."
            return logging.ERROR, text
        case told.MessagesMissed(group=group, uri=uri, positions=positions):
            text = f"{len(positions)} messages that waited in group {group!r} ({uri or 'every uri'}) are deleted."
            return logging.ERROR, text


def keep_journal(events: Events, logger: logging.Logger, say: Say = said) -> Callable[[], None]:
    """Write noteworthy events to `logger`, and of errors what `say` makes of them; returns what undoes it."""

    repeats = Repeats()

    def write(event: Noteworthy) -> None:
        level, text, error = entry(event, say)
        if error is not None and say is not said:
            # A traceback ends with the error's own text.
            text, error = f"{text} {say(error)}", None
        match event:
            case told.ConnectionLost(role=what) | told.ListenerLost(channel=what):
                if not repeats.is_news((type(event), what), text, monotonic()):
                    return
            case told.ConnectionRestored(role=role):
                repeats.over((told.ConnectionLost, role))
            case _:
                pass
        hide_parameters(error)
        # Not as a format: a name may hold a percent sign.
        logger.log(level, "%s", one_line(text), exc_info=error)

    def hear(event: told.ListenerReady) -> None:
        repeats.over((told.ListenerLost, event.channel))

    undo = events.subscribe(write, *Noteworthy.__args__), events.subscribe(hear, told.ListenerReady)

    def stop() -> None:
        for each in undo:
            each()

    return stop

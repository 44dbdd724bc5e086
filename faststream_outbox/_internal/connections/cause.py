"""What an error of the database means, whichever driver raised it, and what may be repeated of it.

Drivers agree on SQLSTATE and on little else: one calls it `sqlstate`, another `pgcode`, SQLAlchemy keeps the driver's
error in `orig`, and a connection that was never made has none at all. All of that is known here. Every question has one
function, which looks at the error and at nothing else; what follows from the answer is the caller's business. Errors
quote what was sent, which is messages and the application's own data: `hide_parameters` and `said` leave that out.
Used wherever a statement can fail, and by whatever logs or stores an error.
"""

import re
import sys
from collections.abc import Iterator
from traceback import walk_tb

from sqlalchemy.exc import StatementError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from faststream_outbox.errors import BeingHandled

REFUSED, CONFLICT, DEADLOCK, LOCKED, CANCELLED = "42501", "40001", "40P01", "55P03", "57014"
FAILED_TRANSACTION, IDLE_TOO_LONG, DIVIDED_BY_ZERO, DAMAGED = "25P02", "25P03", "22012", "XX001"
MISSING = ("42P01", "42703", "42883", "3F000")
"""No such table, column, function or schema."""

MOST_LINKS = 10
"""An error may be its own cause, by a detour."""
MOST_SAID = 1000

# Connections, resources, what others do meanwhile, shutdowns, and a server that only reads until it is promoted.
_PASSING = ("08", "53", CONFLICT, DEADLOCK, LOCKED, "57P0", "25006")
_BROKEN = ("08", "57P")
_OF_THE_LINE = ("08", "53", "57")
# Unsupported features, states of the transaction, logins, databases and schemas, conflicts, syntax and rights, locks,
# disks and files, faults of the server.
_NEVER_OF_ONE = ("0A", "25", "26", "28", "3D", "3F", "40", "42", "55", "58", "XX")
# Triggered actions, cardinality, data, integrity, triggered changes, routines, check options, limits, PL/pgSQL's RAISE.
_OF_THE_DATA = ("09", "21", "22", "23", "27", "2F", "38", "39", "44", "54", "P0")
_OF_THE_STATEMENT = ("22", "23", "42", "0A")

_ON_BEHALF = sys.stdlib_module_names | {"uvloop"}
"""Sockets and event loops: where an error is raised there, somebody else wanted the connection."""

_CLASS_IN_FRONT = re.compile(r"^<class '[^']+'>: ")
"""SQLAlchemy's errors around asyncpg's begin like that."""


def sqlstate_of(error: BaseException | None) -> str | None:
    """The SQLSTATE that an error of a driver, or SQLAlchemy's around one, carries."""
    for holder in (error, getattr(error, "orig", None)):
        state = getattr(holder, "sqlstate", None) or getattr(holder, "pgcode", None)
        if isinstance(state, str):
            return state
    return None


def has_state(error: BaseException | None, *beginnings: str) -> bool:
    """Whether its SQLSTATE is one of these, or of these classes."""
    state = sqlstate_of(error)
    return state is not None and state.startswith(beginnings)


def first_line(error: BaseException) -> str:
    """What the server or the driver says; the lines below may have the row or the statement that it is about."""
    origin = getattr(error, "orig", None) or error
    line = next((line for line in str(origin).splitlines() if line.strip()), "")
    return _CLASS_IN_FRONT.sub("", line) or type(origin).__name__


def is_transient(error: BaseException | None) -> bool:
    """Whether the database's trouble passes by itself, and says nothing about the message that it came with.

    What an error was raised from counts as well; what was merely being handled at the time does not. A time that is
    over is an attempt that was used up, whatever it was in the middle of.
    """
    for link in _links(error):
        if isinstance(link, TimeoutError):
            return False
        if _is_passing(link):
            return True
    return False


def is_conflict(error: BaseException | None) -> bool:
    """Whether the server could not fit the transaction in with another one."""
    return has_state(error, CONFLICT)


def is_locked(error: BaseException | None) -> bool:
    """Whether somebody else has locked one of the rows, or the table."""
    return has_state(error, LOCKED)


def is_answered(error: BaseException) -> bool:
    """Whether the server itself said so, on a connection that still stands."""
    is_gone = getattr(error, "connection_invalidated", False) or sqlstate_of(error) is None
    return not is_gone and not has_state(error, *_BROKEN)


def is_bad_line(error: BaseException) -> bool:
    """Whether the connection broke, as opposed to an answer that was refused, unreadable or too slow."""
    if isinstance(error, TimeoutError):
        return False
    if sqlstate_of(error) is not None:
        return has_state(error, *_OF_THE_LINE)
    # The drivers' own errors of a connection; none of the drivers need be installed.
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(names & {"OperationalError", "InterfaceError"})


def may_be_of_one(error: BaseException) -> bool:
    """Whether one message can have caused it; a missing right, table or disk fails for every message alike."""
    return has_state(error, DAMAGED) or not has_state(error, *_NEVER_OF_ONE)


def is_lost(error: BaseException) -> bool:
    """Whether the connection failed, and not the statement."""
    return sqlstate_of(error) is None or has_state(error, IDLE_TOO_LONG, "08")


def is_fault_of_data(error: BaseException) -> bool:
    """Whether the row, or what was to be written to it, is to blame; of an error that is not about connecting."""
    if sqlstate_of(error) is not None:
        return has_state(error, *_OF_THE_DATA)
    # The driver could not even write the values down.
    return isinstance(error, ValueError | OverflowError)


def is_refused(error: BaseException) -> bool:
    """Whether the server will say the same of the same statement again."""
    return has_state(error, *_OF_THE_STATEMENT)


def hide_parameters(error: BaseException | None) -> None:
    """Keep parameters out of the text of SQLAlchemy's errors: of this one, its causes, and whatever it groups."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, StatementError):
            one.hide_parameters = True
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def said(error: BaseException | None) -> str:
    """An error for a line of the log: its type and what it says, of the server's errors only the first sentence."""
    if error is None:
        return "None"
    origin = error.orig if isinstance(error, StatementError) and error.orig is not None else error
    primary = getattr(getattr(origin, "diag", None), "message_primary", None)
    try:
        if primary is not None:
            text = f"{type(origin).__name__}({primary!r})"
        elif isinstance(error, StatementError):
            # SQLAlchemy's errors around asyncpg's have the details on the lines below.
            text = f"{type(error).__name__}({(str(origin).splitlines() or [''])[0]!r})"
        elif isinstance(error, UnicodeError):
            # Its repr has all of what could not be read, which is a body.
            text = f"{type(error).__name__}({str(error)!r})"
        else:
            text = _with_words(repr(error), error.args)
    except Exception as problem:  # noqa: BLE001 - the user's own class; the log must not fail
        text = f"{type(error).__name__} ({type(problem).__name__} while rendering it)"
    return text if len(text) <= MOST_SAID else text[: MOST_SAID - 1] + "…"


def _links(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(MOST_LINKS):
        if error is None:
            return
        yield error
        error = error.__cause__


def _is_passing(error: BaseException) -> bool:
    """Whether this error alone says so."""
    if isinstance(error, PoolExhausted | BeingHandled) or getattr(error, "connection_invalidated", False):
        return True
    if sqlstate_of(error) is not None:
        return has_state(error, *_PASSING)
    if isinstance(error, OSError):
        return _was_raised_for_database(error)
    return _is_operational(error)


def _was_raised_for_database(error: OSError) -> bool:
    """Whether it was on the way to the database: an HTTP client that is refused raises the very same error."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in walk_tb(error.__traceback__)]
    wanted_by = (top for module in reversed(modules) if (top := _top(module)) not in _ON_BEHALF)
    return _is_of_database(next(wanted_by, ""))


def _is_operational(error: BaseException) -> bool:
    """Whether a driver could not do its work: psycopg says so, and no more, of a server that it cannot reach.

    Through SQLAlchemy an application may also use another database, whose driver has an error of the same name.
    """
    for holder in (getattr(error, "orig", None), error):
        for kind in type(holder).__mro__:
            if kind.__name__ == "OperationalError":
                return _is_of_database(_top(kind.__module__))
    return False


def _is_of_database(top: str) -> bool:
    return top in ("sqlalchemy", "asyncpg") or top.startswith("psycopg")


def _top(module: str) -> str:
    return module.partition(".")[0]


def _with_words(text: str, args: tuple[object, ...]) -> str:
    """The repr of an error, and what it was made with if that is not in it: redis-py leaves it out."""
    words = repr(args[0]) if args else ""
    return text if words[1:-1] in text else f"{text}({words})"

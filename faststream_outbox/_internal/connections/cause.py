"""Whom to blame for a statement that failed: the line, the statement itself, or perhaps one message of many.

By the error alone, whichever driver raised it. Pure. Used by whoever claims or reads messages, to find the one that
nobody can read.

Errors without the values that were sent: those are messages and the application's own data.

SQLAlchemy puts a statement's parameters into the text of its errors, the server may put the row that it refused into
its details, and what Python says of bytes that are no text has all of them. None of it belongs into a log. Used for
whatever is logged or stored of an error.
"""

from sqlalchemy.exc import StatementError


def is_bad_line(error: Exception) -> bool:
    """Whether the connection broke, as opposed to an answer that was refused, unreadable or too slow."""
    if isinstance(error, TimeoutError):
        return False
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in ("08", "53", "57")
    # The drivers' own errors of a connection; none of the drivers need be installed.
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(names & {"OperationalError", "InterfaceError"})


# Unsupported features, states of the transaction, logins, databases and schemas, conflicts, syntax and rights, locks,
# disks and files, faults of the server.
_NEVER_OF_ONE = ("0A", "25", "26", "28", "3D", "3F", "40", "42", "55", "58", "XX")
_DAMAGED = "XX001"


def may_be_of_one(error: Exception) -> bool:
    """Whether one message can have caused it; a missing right, table or disk fails for every message alike."""
    state = getattr(error, "sqlstate", None)
    return state == _DAMAGED or not (isinstance(state, str) and state[:2] in _NEVER_OF_ONE)


MOST_SAID = 1000


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


def _with_words(text: str, args: tuple[object, ...]) -> str:
    """The repr of an error, and what it was made with if that is not in it: redis-py leaves it out."""
    words = repr(args[0]) if args else ""
    return text if words[1:-1] in text else f"{text}({words})"

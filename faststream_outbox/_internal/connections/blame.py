"""Whom to blame for a statement that failed: the line, the statement itself, or perhaps one message of many.

By the error alone, whichever driver raised it. Pure. Used by whoever claims or reads messages, to find the one that
nobody can read.
"""


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

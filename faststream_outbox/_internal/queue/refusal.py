"""What a failed settle statement means: the data's own fault, or an outage that passes.

A message is set apart only where its data is the cause, and only after it was refused several times over some
seconds, alone. A missing table, a missing right, a role that may not log in, an internal error: those
say nothing about the message. Pure. Used by `settler` and `pending`.
"""

APART_TIMES = 5
APART_SECONDS = 3.0

# Triggered actions, cardinality, data, integrity, triggered changes, routines, check options, limits, PL/pgSQL's RAISE.
_DATA = ("09", "21", "22", "23", "27", "2F", "38", "39", "44", "54", "P0")


def is_fault_of_data(error: BaseException) -> bool:
    """Whether the row, or what was to be written to it, is to blame; of an error that is not about connecting."""
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in _DATA
    # The driver could not even write the values down.
    return isinstance(error, ValueError | OverflowError)


def is_locked(error: BaseException) -> bool:
    """Whether somebody else has locked one of the rows."""
    return getattr(error, "sqlstate", None) == "55P03"


def is_final(refusals: int, seconds: float) -> bool:
    """Whether what was refused so often, over so long a time, will be refused for ever."""
    return refusals >= APART_TIMES and seconds >= APART_SECONDS

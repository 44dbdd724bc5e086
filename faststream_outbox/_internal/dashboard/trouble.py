"""An error as an operator reads it: what happened and what to do, without what it might quote. Used by all screens."""

import logging

from faststream_outbox._internal.connections.rights import REFUSED, sqlstate_of
from faststream_outbox.errors import InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType, OutboxError

logger = logging.getLogger("faststream_outbox.dashboard")

INVALID = (InvalidMessage, InvalidMessageType, InvalidOption, InvalidOptionType)
"""What is said of a field that cannot be right."""
_MISSING = {"42P01", "42703", "3F000"}
_CANCELLED = "57014"


def describe(error: BaseException) -> str:
    """One sentence or two."""
    if isinstance(error, OutboxError):
        return str(error)
    state = sqlstate_of(error)
    if state == REFUSED:
        return (
            f"{_first_line(error)}. GRANT the dashboard's role what it needs for this: docs/security.md has the list."
        )
    if state in _MISSING:
        return "A table or a column is missing: run your migrations; validate_schema() lists what differs."
    if isinstance(error, TimeoutError) or state == _CANCELLED:
        return "The database took too long to answer this."
    if isinstance(error, OSError) or (state is not None and state[:2] in ("08", "57")):
        return "The database does not answer."
    logger.error("A question or an action of the dashboard failed.", exc_info=error)
    return f"It failed with {type(error).__name__}; the log has the details."


def _first_line(error: BaseException) -> str:
    """What the server says of a missing right: names of objects and nothing else."""
    origin = getattr(error, "orig", None) or error
    line = (str(origin).splitlines() or ["permission denied"])[0]
    return line.rpartition(">: ")[2].rstrip(".").capitalize()

"""What the server says of a missing right, made into an error that says which GRANT is missing.

Permission is refused with one SQLSTATE, whatever was missing: a right on the table, one on its sequence, one on the
schema, or a policy that does not let the row in. The server names the object; the statement decides which rights on
it are needed. Pure. Used by `caller`, for whatever runs in the caller's session, and by the event log.
"""

import re

from faststream_outbox._internal.connections.cause import REFUSED, first_line, has_state
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.errors import MissingRight

PAGE = "docs/security.md"
"""Where the rights of every role are listed."""

MESSAGE_COLUMNS = "queue, payload, headers, created_at, next_attempt_at, key, priority, message_id"
_PUBLISHING = f"INSERT ({MESSAGE_COLUMNS}), SELECT (id)"
_TIMERS = f"INSERT ({MESSAGE_COLUMNS}, timer_id), SELECT (id, queue, timer_id)"
_APPENDING = "INSERT, SELECT (position, event_id) on the log and SELECT (one, high) on its head"

NEEDS = {
    "publish_one": _PUBLISHING,
    "publish_alike": _PUBLISHING,
    "publish_many": _PUBLISHING,
    "publish_new_timers": _TIMERS,
    "publish_timers": f"{_TIMERS}, and those for timers that are replaced",
    "cancel_timer": "DELETE, SELECT",
    "append": _APPENDING,
    "append_one": _APPENDING,
    "append_to_partitions": _APPENDING,
    "append_whole": _APPENDING,
    "withdraw": "DELETE",
}
"""Rights on the table that a statement of a producer needs."""

# Only where the server speaks English; what it says is passed on in any case.
_OBJECT = re.compile(r"permission denied for (table|relation|sequence|schema|column|view) (.+)")
_POLICY = re.compile(r"row-level security policy.* for table (.+)")


def missing_right(error: BaseException, statement: Statement) -> MissingRight | None:
    """What to raise instead of an error that means a missing right; None if it means something else."""
    if not has_state(error, REFUSED):
        return None
    said = first_line(error)
    return MissingRight(f"{said}: {_advice(said, statement)} All roles and their rights: {PAGE}.")


def _advice(said: str, statement: Statement) -> str:
    if (policy := _POLICY.search(said)) is not None:
        return f"a policy of {policy[1]} does not let this role write such a row."
    found = _OBJECT.search(said)
    kind, name = (found[1], found[2]) if found is not None else ("", "")
    if kind == "schema":
        return f"GRANT USAGE ON SCHEMA {name} TO the role."
    if kind == "sequence":
        return f"GRANT USAGE ON SEQUENCE {name} TO the role."
    needs = NEEDS.get(statement.name)
    if needs is None:
        return f"the role lacks a right that {statement.name!r} needs."
    return f"the role needs {needs}."

"""What no SQL of ours can repair safely: said in words, with what it costs and what to do.

Something else under the table's name may hold messages, and policies, triggers, rules and rights are the
user's own. A pure function over the values of `schema.shape`; called by `schema.compare`.
"""

from collections.abc import Iterator

from faststream_outbox._internal.schema.names import quoted
from faststream_outbox._internal.schema.shape import Expected, Found

_KINDS = {
    "r": "an ordinary table",
    "v": "a view",
    "m": "a materialized view",
    "p": "a partitioned table",
    "f": "a foreign table",
    "S": "a sequence",
    "i": "an index",
    "I": "an index",
    "c": "a type",
}
_COSTS = {
    "v": "claims cannot lock rows through it",
    "m": "nobody can write to it",
    "p": "its rows cannot be claimed by their place, and a timer_id cannot be unique",
    "f": "what is written there is not committed together with your data",
}


def wrong_kind(expected: Expected, found: Found) -> str | None:
    """What is wrong if something else has the table's name."""
    wanted = "p" if expected.is_partitioned else "r"
    if found.kind == wanted:
        return None
    kind = _KINDS.get(found.kind, "something else")
    if {found.kind, wanted} == {"r", "p"} and not expected.lease_columns:
        setting = "partitioned=True" if found.kind == "p" else "partitioned=False"
        hint = f"If that is meant, say {setting} to make_log_tables. "
    else:
        hint = ""
    cost = f": {_COSTS[found.kind]}" if found.kind in _COSTS else ""
    return (
        f"it is {kind}, and has to be {_KINDS[wanted]}{cost}. {hint}It may hold messages, so nothing is printed that "
        "moves it: describe the table under another name, and have the messages that are left here published there; or "
        "rename this yourself once nobody reads or writes it, and check again"
    )


def another_table(expected: Expected, found: Found) -> str | None:
    """What is wrong if the table under the name was made for something else, or by something else."""
    there = {column.name for column in found.columns}
    missing = [column for column in expected.columns if column.name not in there]
    if 2 * len(missing) > len(expected.columns):
        return (
            f"it is another table: it lacks {', '.join(column.name for column in missing)}. Nothing is printed that "
            "changes it: describe the table under another name, such as make_outbox_table(metadata, 'messages') or "
            "make_log_tables(metadata, 'messages_log')"
        )
    unknown = [column.name for column in missing if not (column.nullable or column.serial or column.default)]
    if unknown and not expected.is_filled:
        return (
            f"it lacks {', '.join(unknown)}, and what rows from before have there cannot be known: this is a table of "
            "another library or of an earlier version. Nothing is printed that changes it: describe the log under "
            "another name, such as make_log_tables(metadata, 'messages_log'), publish there, let the readers of this "
            "one finish, and then drop it"
        )
    return None


def hazards(expected: Expected, found: Found) -> Iterator[str]:
    """What keeps rows from whoever asks now."""
    around = found.surroundings
    role = quoted(around.role) if around.role else "this role"
    if around.lacks:
        rights = ", ".join(around.lacks)
        yield (
            f"the role {role} may not {rights}: whoever handles messages as it can neither claim nor settle them all. "
            f"Have the owner of the table run: GRANT {rights} ON {found.name} TO {role}"
        )
    if around.hides_rows:
        yield (
            f"row level security is active for the role {role}: messages that no policy shows to it are never handled, "
            "and without an error. Run workers as the owner of the table or as a role with BYPASSRLS, or give their "
            "role one policy FOR ALL with USING (true) and WITH CHECK (true)"
        )
    for trigger in around.dropping_triggers:
        yield (
            f"the trigger {trigger} may drop rows, for its function has RETURN NULL: such a message is not stored, not "
            "leased or never ends, and without an error. Have it return NEW, or OLD for a DELETE, or make it an AFTER "
            "trigger"
        )
    for rule in around.rules:
        yield (
            f"the rule {rule} does something INSTEAD: statements of the library do not do what they say. "
            "Drop the rule, or use a trigger that returns its row"
        )
    if around.children:
        yield (
            f"tables inherit from it ({', '.join(around.children)}): a claim by the place of a row would take a row of "
            "theirs too. End that with ALTER TABLE … NO INHERIT, and have their messages published again"
        )
    for index in found.indexes:
        if index.deferrable and not index.primary:
            yield (
                f"the constraint {index.constraint or index.name} is DEFERRABLE: ON CONFLICT cannot use it, and "
                "publishing timers, replaying or reading fails. Drop it, and add it again as NOT DEFERRABLE"
            )

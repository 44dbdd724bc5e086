"""The differences between a described table and a live one, each with the SQL or the words that repair it.

A pure function over the values of `schema.shape`. What a user has added is left alone, unless it would make publishing
fail or claiming slow. What no SQL of ours can repair safely is said in words, with what it costs and what to do:
something else under the table's name may hold messages, and policies, triggers, rules and rights are the user's own.
The differences come in an order in which their fixes can be applied. Called by `schema.check`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from faststream_outbox._internal.schema import repair
from faststream_outbox._internal.schema.autovacuum import outbox_autovacuum_ddl
from faststream_outbox._internal.schema.expression import canonical, canonical_default, canonical_type
from faststream_outbox._internal.schema.names import quoted
from faststream_outbox._internal.schema.shape import (
    Absent,
    Expected,
    ExpectedColumn,
    ExpectedIndex,
    Found,
    FoundColumn,
    FoundIndex,
)

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


_CONCURRENTLY = re.compile(r"(CREATE|DROP) (UNIQUE )?INDEX CONCURRENTLY ")
_PUBLISHING_FAILS = "publishing would fail"


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is wrong: where, what, and the SQL that repairs it, one statement a line.

    Where nothing can be repaired safely by SQL, there is none, and the problem says what to do.
    """

    where: str
    problem: str
    fix: str = ""
    is_fatal: bool = field(default=False, compare=False)
    """Whether messages cannot be published or handled at all as it is; what is merely slow or unwise is not fatal."""

    @property
    def runs_in_transaction(self) -> bool:
        """Whether the SQL may stand in a transaction with others; indexes are built and dropped outside of one."""
        return not any(_CONCURRENTLY.match(line) for line in self.fix.splitlines())


def compare(expected: Expected, found: Found | Absent, *, check_autovacuum: bool = False) -> list[Difference]:
    """Everything in which `found` differs from what `expected` needs; nothing if it will do."""
    if isinstance(found, Absent):
        fix = repair.create_table(expected, schema_exists=found.schema_exists)
        return [Difference(expected.name, "the table does not exist", fix, is_fatal=True)]
    if (wrong := wrong_kind(expected, found) or another_table(expected, found)) is not None:
        return [Difference(found.name, wrong, is_fatal=True)]
    return [
        *(Difference(found.name, problem) for problem in hazards(expected, found)),
        *_persistence(found),
        *_lease_indexes(expected, found),
        *_missing_columns(expected, found),
        *_primary_key(expected, found),
        *_columns(expected, found),
        *_extra_columns(expected, found),
        *_checks(expected, found),
        *_indexes(expected, found),
        *_fillfactor(expected, found),
        *(_autovacuum(found) if check_autovacuum else ()),
    ]


def _persistence(found: Found) -> Iterator[Difference]:
    if not found.logged:
        problem = "the table is UNLOGGED: a crash of the server empties it"
        yield Difference(found.name, problem, repair.set_logged(found.name))


def _lease_indexes(expected: Expected, found: Found) -> Iterator[Difference]:
    for index in found.indexes:
        columns = sorted(index.mentions & expected.lease_columns)
        if columns and not index.primary:
            problem = f"it mentions {', '.join(columns)}: every claim has to write to all indexes of the row"
            yield Difference(_index_place(found, index.name), problem, repair.drop_index(found, index))


def _missing_columns(expected: Expected, found: Found) -> Iterator[Difference]:
    there = {column.name for column in found.columns}
    for column in expected.columns:
        if column.name not in there:
            fix = repair.add_column(found.name, column)
            yield Difference(f"{found.name}.{column.name}", "the column is missing", fix, is_fatal=True)


def _primary_key(expected: Expected, found: Found) -> Iterator[Difference]:
    if found.primary_key != expected.primary_key:
        is_now = f"({', '.join(found.primary_key)})" if found.primary_key else "missing"
        problem = f"the primary key is {is_now}, and has to be ({', '.join(expected.primary_key)})"
        fix = repair.replace_primary_key(found.name, expected, found.primary_key_name)
        yield Difference(found.name, problem, fix, is_fatal=True)
    elif any(index.primary and index.deferrable for index in found.indexes):
        problem = (
            "the primary key is DEFERRABLE: ON CONFLICT cannot use it, and replaying dead letters or reading fails"
        )
        yield Difference(found.name, problem, repair.replace_primary_key(found.name, expected, found.primary_key_name))


def _columns(expected: Expected, found: Found) -> Iterator[Difference]:
    there = {column.name: column for column in found.columns}
    for column in expected.columns:
        live = there.get(column.name)
        if live is not None:
            for problem, fix in _column(expected, found, column, live):
                is_fatal = problem.startswith("the type is ") or _PUBLISHING_FAILS in problem
                yield Difference(f"{found.name}.{column.name}", problem, fix, is_fatal=is_fatal)


def _column(expected: Expected, found: Found, column: ExpectedColumn, live: FoundColumn) -> Iterator[tuple[str, str]]:
    table = found.name
    if canonical_type(live.type) != canonical_type(column.type):
        problem = f"the type is {live.type}, and has to be {column.type}"
        yield problem, repair.change_type(table, column, live)
    if column.serial:
        yield from _numbering(found, live)
        if live.always and (column.identity or expected.lease_columns):
            problem = "it is GENERATED ALWAYS: what comes back under its own number, as in a replay, is refused"
            yield problem, repair.let_be_given(table, column.name)
    elif (wrong := _default_problem(column, live)) is not None:
        yield wrong, repair.change_default(table, column, live)
    if live.nullable and not column.nullable:
        yield "it allows NULL", repair.set_not_null(table, column)
    if column.nullable and not live.nullable:
        yield f"it is NOT NULL: {_PUBLISHING_FAILS}", repair.drop_not_null(table, column.name)


def _numbering(found: Found, live: FoundColumn) -> Iterator[tuple[str, str]]:
    if not live.identity and not (live.default or "").startswith("nextval("):
        yield f"nothing numbers it: {_PUBLISHING_FAILS}", repair.number(found, live)
    elif live.sequence is not None and not live.sound:
        problem = f"its sequence {live.sequence} runs out too early, or does not number messages in their order"
        yield problem, repair.repair_sequence(live.sequence)
    if live.sequence is not None and not live.owned:
        problem = (
            f"its sequence {live.sequence} does not belong to it: whoever looks for its last number finds none, and a "
            "replay cannot keep ids from being drawn twice"
        )
        yield problem, repair.own_sequence(found.name, live.name, live.sequence)


def _default_problem(column: ExpectedColumn, live: FoundColumn) -> str | None:
    if live.generated:
        return f"it is a generated column: {_PUBLISHING_FAILS}"
    wanted, actual = canonical_default(column.default), canonical_default(live.default)
    if wanted == actual:
        return None
    if wanted is None:
        # Statements always give a value to a column that must have one; elsewhere, none has to mean NULL.
        return f"it has the default {live.default}, and has to have none" if column.nullable else None
    if actual is None:
        return f"it has no default: {_PUBLISHING_FAILS}"
    return f"the default is {live.default}, and has to be {column.default}"


def _extra_columns(expected: Expected, found: Found) -> Iterator[Difference]:
    known = {column.name for column in expected.columns}
    for column in found.columns:
        has_value = column.nullable or column.identity or column.default is not None
        if column.name not in known and not has_value:
            problem = f"a column of your own is NOT NULL and has no default: {_PUBLISHING_FAILS}"
            fix = repair.drop_not_null(found.name, column.name)
            yield Difference(f"{found.name}.{column.name}", problem, fix, is_fatal=True)


def _checks(expected: Expected, found: Found) -> Iterator[Difference]:
    enforced = {canonical(check.predicate): check for check in found.checks if check.enforced and check.validated}
    waiting = {canonical(check.predicate): check for check in found.checks if check.enforced}
    names = {check.name for check in found.checks}
    for check in expected.checks:
        predicate = canonical(check.predicate)
        if predicate not in enforced and predicate in waiting:
            name = waiting[predicate].name
            problem = (
                f"the constraint {name} is NOT VALID: rows from before may break it, and such a row is never claimed"
            )
            yield Difference(found.name, problem, repair.validate_check(found.name, name))
        elif predicate not in enforced:
            fix = repair.replace_check(found.name, check, name_taken=check.name in names)
            yield Difference(found.name, f"no constraint enforces CHECK ({check.predicate})", fix)


def _indexes(expected: Expected, found: Found) -> Iterator[Difference]:
    for index in expected.indexes:
        place = _index_place(found, index.name)
        alike = [item for item in found.indexes if _is_alike(index, item)]
        broken = [item for item in alike if not item.usable]
        namesakes = [item for item in found.indexes if item.name == index.name and item not in alike]
        if len(broken) < len(alike):
            # A rebuild that is going on looks like one that failed.
            for item in broken:
                if not item.building:
                    problem = "it is invalid, left by a CREATE or REINDEX INDEX CONCURRENTLY that failed"
                    yield Difference(_index_place(found, item.name), problem, repair.drop_index(found, item))
            continue
        problem = "the index is missing"
        if broken:
            problem = f"{broken[0].name} is invalid, left by a CREATE INDEX CONCURRENTLY that failed"
        elif namesakes:
            problem = "the index is defined differently"
        problem = f"{problem}; needed is {_definition(index)}"
        # A statement with ON CONFLICT fails where no unique index is there for it.
        fix = repair.replace_index(found, index, [*broken, *namesakes])
        yield Difference(place, problem, fix, is_fatal=index.unique)


def _is_alike(index: ExpectedIndex, live: FoundIndex) -> bool:
    wanted = None if index.predicate is None else canonical(index.predicate)
    actual = None if live.predicate is None else canonical(live.predicate)
    same_columns = live.columns == index.columns and not live.included and live.method == "btree"
    return same_columns and live.unique == index.unique and wanted == actual


def _definition(index: ExpectedIndex) -> str:
    unique = "UNIQUE " if index.unique else ""
    where = "" if index.predicate is None else f" WHERE {index.predicate}"
    return f"{unique}({', '.join(index.columns)}){where}"


def _index_place(found: Found, name: str) -> str:
    return f"{found.name} index {name}"


def _fillfactor(expected: Expected, found: Found) -> Iterator[Difference]:
    live = int(found.options.get("fillfactor", "100"))
    if expected.fillfactor is not None and live > expected.fillfactor:
        problem = f"fillfactor is {live}, and has to be {expected.fillfactor}: claims find no room on their page"
        yield Difference(found.name, problem, repair.set_fillfactor(found.name, expected.fillfactor))


def _autovacuum(found: Found) -> Iterator[Difference]:
    if found.options.get("autovacuum_enabled", "true") not in ("true", "on", "1", "yes"):
        fix = f"ALTER TABLE {found.name} RESET (autovacuum_enabled);"
        yield Difference(found.name, "autovacuum is switched off", fix)
    factors = [found.options.get(f"autovacuum_vacuum_{kind}scale_factor") for kind in ("", "insert_")]
    thresholds = [found.options.get(f"autovacuum_vacuum_{kind}threshold") for kind in ("", "insert_")]
    if None in thresholds or any(factor is None or float(factor) != 0 for factor in factors):
        dead, inserted = (1000 if value is None else max(int(value), 0) for value in thresholds)
        fix = outbox_autovacuum_ddl(found.table, schema=found.schema, vacuum_threshold=dead, insert_threshold=inserted)
        problem = "autovacuum waits for a share of the table, and not for a number of dead and inserted rows"
        yield Difference(found.name, problem, f"{fix};")

"""The SQL that brings a live table to the described form, one statement a line, ready to paste.

Every statement keeps the rows and works on a table that has some, or fails and changes nothing. Indexes
are built and dropped CONCURRENTLY, because publishers and workers are writing meanwhile; only such
statements cannot run inside a transaction. Called by `schema.compare`; executes nothing.
"""

from faststream_outbox._internal.schema.names import quoted
from faststream_outbox._internal.schema.shape import (
    Expected,
    ExpectedCheck,
    ExpectedColumn,
    ExpectedIndex,
    Found,
    FoundColumn,
    FoundIndex,
)

# What existing rows get in a new column that has to have a value and has no default of its own.
_FILL = {
    "bigint": "0",
    "smallint": "0",
    "bytea": "''",
    "jsonb": "'null'",
    "text": "''",
    "timestamp with time zone": "now()",
    "uuid": "gen_random_uuid()",
}
_SOUND = "AS bigint INCREMENT BY 1 NO MAXVALUE CACHE 1 NO CYCLE"
_STRINGS = ("text", "varchar", "character varying")
# Types of a family become one another without a word.
_FAMILIES = {
    "string": (*_STRINGS, "character("),
    "number": ("smallint", "integer", "bigint", "numeric"),
    "moment": ("timestamp", "date"),
    "json": ("json",),
}


def create_table(expected: Expected, *, schema_exists: bool) -> str:
    """The whole table with its indexes."""
    parts = [_column_definition(column) for column in expected.columns]
    parts.append(_primary_key(expected))
    parts.extend(_check(check) for check in expected.checks)
    options = "" if expected.fillfactor is None else f" WITH (fillfactor = {expected.fillfactor})"
    by = f" PARTITION BY RANGE ({', '.join(map(quoted, expected.primary_key))})" if expected.is_partitioned else ""
    statements = [f"CREATE TABLE {expected.name} ({', '.join(parts)}){by}{options}"]
    if expected.schema is not None and not schema_exists:
        statements.insert(0, f"CREATE SCHEMA IF NOT EXISTS {quoted(expected.schema)}")
    statements.extend(_create_index(index, expected.name) for index in expected.indexes)
    return _lines(*statements)


def add_column(table: str, column: ExpectedColumn) -> str:
    """A missing column; rows that exist get its default, or something that takes the place of a value."""
    if column.nullable or column.serial or column.default is not None:
        return _lines(f"ALTER TABLE {table} ADD COLUMN {_column_definition(column)}")
    fill = _FILL["text" if column.type.startswith(_STRINGS) else column.type]
    return _lines(
        f"ALTER TABLE {table} ADD COLUMN {_column_definition(column)} DEFAULT {fill}",
        f"ALTER TABLE {table} ALTER COLUMN {quoted(column.name)} DROP DEFAULT",
    )


def change_type(table: str, column: ExpectedColumn, found: FoundColumn) -> str:
    """Another type; a default is dropped meanwhile, since PostgreSQL casts it less readily than values."""
    name = quoted(column.name)
    alter = f"ALTER COLUMN {name}"
    actions = [f"{alter} TYPE {column.type}"]
    if (family := _family(found.type)) is None or family != _family(column.type):
        value = name if family == "string" else f"CAST({name} AS text)"
        value = f"convert_to({value}, 'UTF8')" if column.type == "bytea" else f"CAST({value} AS {column.type})"
        actions = [f"{alter} TYPE {column.type} USING {value}"]
    if found.default is not None and not column.serial:
        actions.insert(0, f"{alter} DROP DEFAULT")
        if column.default is not None:
            actions.append(f"{alter} SET DEFAULT {column.default}")
    return _lines(f"ALTER TABLE {table} {', '.join(actions)}")


def _family(type_: str) -> str | None:
    return next((name for name, starts in _FAMILIES.items() if type_.startswith(starts)), None)


def change_default(table: str, column: ExpectedColumn, found: FoundColumn) -> str:
    """The described default, or none; a virtual column has no values to keep, and is made anew."""
    if found.virtual:
        drop = f"ALTER TABLE {table} DROP COLUMN {quoted(column.name)}"
        return _lines(drop) + "\n" + add_column(table, column)
    actions = ["DROP EXPRESSION"] if found.generated else []
    if column.default is not None:
        actions.append(f"SET DEFAULT {column.default}")
    elif not found.generated:
        actions.append("DROP DEFAULT")
    return _lines(*(f"ALTER TABLE {table} ALTER COLUMN {quoted(column.name)} {action}" for action in actions))


def number(found: Found, column: FoundColumn) -> str:
    """A sequence that goes on after the last id; not an identity, which Alembic would want to take away."""
    name = quoted(column.name)
    sequence = column.sequence or quoted(f"{found.table}_{column.name}_seq", found.schema)
    beyond = f"(SELECT coalesce(max({name}), 0) + 1 FROM {found.name})"
    text = _literal(sequence)
    return _lines(
        f"CREATE SEQUENCE IF NOT EXISTS {sequence}",
        f"ALTER SEQUENCE {sequence} {_SOUND} OWNED BY {found.name}.{name}",
        f"ALTER TABLE {found.name} ALTER COLUMN {name} SET DEFAULT nextval({text})",
        f"SELECT setval({text}, greatest(nextval({text}), {beyond}), false)",
    )


def repair_sequence(sequence: str) -> str:
    """Numbers that grow in the order in which they are drawn, and do not run out."""
    return _lines(f"ALTER SEQUENCE {sequence} {_SOUND}")


def own_sequence(table: str, column: str, sequence: str) -> str:
    """A sequence that goes with its column, and is found by it."""
    return _lines(f"ALTER SEQUENCE {sequence} OWNED BY {table}.{quoted(column)}")


def let_be_given(table: str, column: str) -> str:
    """An identity that takes a value where one is given."""
    return _lines(f"ALTER TABLE {table} ALTER COLUMN {quoted(column)} SET GENERATED BY DEFAULT")


def validate_check(table: str, name: str) -> str:
    """Have the rows from before looked at."""
    return _lines(f"ALTER TABLE {table} VALIDATE CONSTRAINT {quoted(name)}")


def set_not_null(table: str, column: ExpectedColumn) -> str:
    """Forbid NULL; where the column has a default, rows without a value get it first."""
    name = quoted(column.name)
    statements = [f"ALTER TABLE {table} ALTER COLUMN {name} SET NOT NULL"]
    if column.default is not None:
        statements.insert(0, f"UPDATE {table} SET {name} = DEFAULT WHERE {name} IS NULL")
    return _lines(*statements)


def drop_not_null(table: str, column: str) -> str:
    """Allow NULL."""
    return _lines(f"ALTER TABLE {table} ALTER COLUMN {quoted(column)} DROP NOT NULL")


def replace_primary_key(table: str, expected: Expected, found_name: str | None) -> str:
    """The described primary key, in place of another if there is one."""
    drop = "" if found_name is None else f"DROP CONSTRAINT {quoted(found_name)}, "
    return _lines(f"ALTER TABLE {table} {drop}ADD {_primary_key(expected)}")


def replace_check(table: str, check: ExpectedCheck, *, name_taken: bool) -> str:
    """The described check, in place of another under its name if there is one."""
    drop = f"DROP CONSTRAINT {quoted(check.name)}, " if name_taken and check.name is not None else ""
    return _lines(f"ALTER TABLE {table} {drop}ADD {_check(check)}")


def replace_index(found: Found, index: ExpectedIndex, instead_of: list[FoundIndex]) -> str:
    """The described index, after those that are broken or have its name."""
    drops = [_drop_index(found, item) for item in instead_of]
    return _lines(*drops, _create_index(index, found.name, concurrently=True))


def drop_index(found: Found, index: FoundIndex) -> str:
    """An index that should not be there."""
    return _lines(_drop_index(found, index))


def set_fillfactor(table: str, fillfactor: int) -> str:
    """Room on every page that is filled from now on."""
    return _lines(f"ALTER TABLE {table} SET (fillfactor = {fillfactor})")


def set_logged(table: str) -> str:
    """A table that survives a crash."""
    return _lines(f"ALTER TABLE {table} SET LOGGED")


def _lines(*statements: str) -> str:
    return "\n".join(f"{statement};" for statement in statements)


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _column_definition(column: ExpectedColumn) -> str:
    if column.identity:
        return f"{quoted(column.name)} {column.type} GENERATED BY DEFAULT AS IDENTITY"
    if column.serial:
        return f"{quoted(column.name)} bigserial"
    default = "" if column.default is None else f" DEFAULT {column.default}"
    return f"{quoted(column.name)} {column.type}{default}{'' if column.nullable else ' NOT NULL'}"


def _named(name: str | None) -> str:
    return "" if name is None else f"CONSTRAINT {quoted(name)} "


def _primary_key(expected: Expected) -> str:
    return f"{_named(expected.primary_key_name)}PRIMARY KEY ({', '.join(map(quoted, expected.primary_key))})"


def _check(check: ExpectedCheck) -> str:
    return f"{_named(check.name)}CHECK ({check.predicate})"


def _create_index(index: ExpectedIndex, table: str, *, concurrently: bool = False) -> str:
    kind = ("UNIQUE INDEX" if index.unique else "INDEX") + (" CONCURRENTLY" if concurrently else "")
    where = "" if index.predicate is None else f" WHERE {index.predicate}"
    return f"CREATE {kind} {quoted(index.name)} ON {table} ({', '.join(map(quoted, index.columns))}){where}"


def _drop_index(found: Found, index: FoundIndex) -> str:
    if index.constraint is not None:
        return f"ALTER TABLE {found.name} DROP CONSTRAINT IF EXISTS {quoted(index.constraint)}"
    return f"DROP INDEX CONCURRENTLY IF EXISTS {quoted(index.name, found.schema)}"

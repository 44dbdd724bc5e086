"""What a table should look like and what one does look like, as plain values.

`described` reads the first from a SQLAlchemy table, `schema.catalog` the second from a database, and
`schema.compare` takes both. Names are bare here; they are quoted when they are put into SQL.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    ClauseElement,
    Column,
    ColumnElement,
    DefaultClause,
    Index,
    Table,
    literal,
)
from sqlalchemy.schema import Constraint

from faststream_outbox._internal.schema.names import DIALECT, quoted
from faststream_outbox._internal.schema.tables import fillfactor_of

_sql = DIALECT.statement_compiler(DIALECT, None)


@dataclass(frozen=True, slots=True)
class ExpectedColumn:
    """A column that statements rely on; `serial` means that the database numbers it, `identity` in which way."""

    name: str
    type: str
    nullable: bool
    default: str | None = None
    serial: bool = False
    identity: bool = False


@dataclass(frozen=True, slots=True)
class ExpectedIndex:
    """An access path; `name` is used only when it has to be created."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    predicate: str | None = None


@dataclass(frozen=True, slots=True)
class ExpectedCheck:
    """A check constraint; `name` is used only when it has to be created."""

    name: str | None
    predicate: str


@dataclass(frozen=True, slots=True)
class Expected:
    """A table as this version needs it. No index may mention one of `lease_columns`."""

    table: str
    schema: str | None
    columns: tuple[ExpectedColumn, ...]
    primary_key: tuple[str, ...]
    primary_key_name: str | None = None
    indexes: tuple[ExpectedIndex, ...] = ()
    checks: tuple[ExpectedCheck, ...] = ()
    fillfactor: int | None = None
    lease_columns: frozenset[str] = frozenset()
    is_partitioned: bool = False
    is_filled: bool = True
    """Whether a missing column can be added to rows that exist: a stand-in will do where it must have a value."""

    @property
    def name(self) -> str:
        """The table's name as SQL."""
        return quoted(self.table, self.schema)


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of the database; `sequence` is what it draws from or owns, `sound` if that will do for ids.

    always: nobody else may give it a value. owned: the sequence is known to belong to the column.
    """

    name: str
    type: str
    nullable: bool
    default: str | None = None
    identity: bool = False
    generated: bool = False
    virtual: bool = False
    sequence: str | None = None
    sound: bool = True
    always: bool = False
    owned: bool = True


@dataclass(frozen=True, slots=True)
class FoundIndex:
    """An index of the database; `columns` carry whatever is unusual about them, such as DESC."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    predicate: str | None = None
    method: str = "btree"
    included: tuple[str, ...] = ()
    mentions: frozenset[str] = frozenset()
    constraint: str | None = None
    primary: bool = False
    usable: bool = True
    building: bool = False
    deferrable: bool = False


@dataclass(frozen=True, slots=True)
class FoundCheck:
    """A check constraint of the database."""

    name: str
    predicate: str
    enforced: bool = True
    validated: bool = True


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands between the rows of a table and whoever asks now, as `role`."""

    role: str = ""
    lacks: tuple[str, ...] = ()
    hides_rows: bool = False
    dropping_triggers: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A relation of the database under the table's name; `kind` is PostgreSQL's letter for what it is."""

    table: str
    schema: str
    columns: tuple[FoundColumn, ...]
    primary_key: tuple[str, ...]
    primary_key_name: str | None = None
    indexes: tuple[FoundIndex, ...] = ()
    checks: tuple[FoundCheck, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    kind: str = "r"
    logged: bool = True
    surroundings: Surroundings = field(default_factory=Surroundings)

    @property
    def name(self) -> str:
        """The table's name as SQL, always with its schema, so that a fix works under any search path."""
        return quoted(self.table, self.schema)


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing in the database has the table's name."""

    schema_exists: bool = True


def described(
    table: Table, *, schema: str | None, lease_columns: frozenset[str] = frozenset(), is_filled: bool = True
) -> Expected:
    """What SQLAlchemy would create for `table`, in `schema`."""
    columns = tuple(
        ExpectedColumn(
            name=column.name,
            type=DIALECT.type_compiler_instance.process(column.type).lower(),
            nullable=bool(column.nullable),
            default=_default(column),
            serial=column is table.autoincrement_column or column.identity is not None,
            identity=column.identity is not None,
        )
        for column in table.columns
    )
    checks = [item for item in table.constraints if isinstance(item, CheckConstraint)]
    return Expected(
        table=table.name,
        schema=schema,
        columns=columns,
        primary_key=tuple(column.name for column in table.primary_key.columns),
        primary_key_name=_constraint_name(table.primary_key),
        indexes=tuple(_index(index) for index in sorted(table.indexes, key=lambda index: str(index.name))),
        checks=tuple(ExpectedCheck(_constraint_name(check), _rendered(check.sqltext)) for check in checks),
        fillfactor=fillfactor_of(table),
        lease_columns=lease_columns,
        is_filled=is_filled,
        is_partitioned=table.dialect_options["postgresql"]["partition_by"] is not None,
    )


def _default(column: Column[Any]) -> str | None:
    default = column.server_default
    if not isinstance(default, DefaultClause):
        return None
    value = default.arg if isinstance(default.arg, ClauseElement) else literal(default.arg)
    return _sql.process(value, literal_binds=True)


def _index(index: Index) -> ExpectedIndex:
    predicate = index.dialect_options["postgresql"]["where"]
    return ExpectedIndex(
        name=str(index.name),
        columns=tuple(column.name for column in index.columns),
        unique=bool(index.unique),
        predicate=None if predicate is None else _rendered(predicate),
    )


def _rendered(condition: ColumnElement[bool]) -> str:
    return _sql.process(condition, include_table=False, literal_binds=True)


def _constraint_name(constraint: Constraint) -> str | None:
    """The name after the naming convention, cut as SQLAlchemy cuts it."""
    if constraint.name is None:
        return None
    name = DIALECT.identifier_preparer.format_constraint(constraint)
    return name[1:-1].replace('""', '"') if name is not None and name.startswith('"') else name

"""Names derived from a table: quoted identifiers for SQL, and the channel of its wake-ups.

PostgreSQL cuts identifiers at 63 bytes without a word, and two cut names may collide, so a table
whose derived names would not fit is refused when it is described.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from sqlalchemy import CheckConstraint, Index, MetaData, Table
from sqlalchemy.dialects.postgresql.base import PGDialect
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.errors import InvalidOption, InvalidOptionType

MAX_IDENTIFIER_BYTES = 63
PAUSED = "$paused"
"""Reserved queue name: a row of it whose `timer_id` is a queue's name pauses that queue."""

# Under its default parameter style SQLAlchemy doubles percent signs in names; statements are doubled when run.
# SQLAlchemy does not annotate its dialects' constructors.
DIALECT = PGDialect(paramstyle="named")  # type: ignore[no-untyped-call]  # SQLAlchemy leaves it without types
_preparer = DIALECT.identifier_preparer


def check_metadata(metadata: object, factory: str) -> None:
    """Refuse what is no MetaData, such as the table's name."""
    if not isinstance(metadata, MetaData):
        name = metadata if isinstance(metadata, str) else "outbox"
        kind = type(metadata).__name__
        msg = f"The first argument is the MetaData of your tables, not a {kind}: {factory}(metadata, {name!r})."
        raise InvalidOptionType(msg)
    if metadata.schema is not None:
        check_plain_name("schema", metadata.schema)
        size = len(metadata.schema.encode())
        if size > MAX_IDENTIFIER_BYTES:
            msg = f"schema {metadata.schema!r} needs {size} bytes, and PostgreSQL keeps {MAX_IDENTIFIER_BYTES}."
            raise InvalidOption(msg)


def check_plain_name(option: str, name: object) -> None:
    """Refuse what is no name that PostgreSQL can store."""
    if not isinstance(name, str):
        msg = f"{option} must be a str, the name itself, such as table.name, not a {type(name).__name__}."
        raise InvalidOptionType(msg)
    if not name or "\x00" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        msg = f"{option} {name!r} is not a name: it is empty or contains NUL or a lone surrogate. Give a plain one."
        raise InvalidOption(msg)


def checked_identifier(table_name: str, suffixes: tuple[str, ...]) -> str:
    """Return `table_name` if it and every name made of it and a suffix fit PostgreSQL's limit."""
    check_plain_name("table_name", table_name)
    longest = max(suffixes, key=len, default="")
    size = len((table_name + longest).encode())
    if size > MAX_IDENTIFIER_BYTES:
        msg = (
            f"Table name {table_name!r} is too long: {table_name + longest!r} needs {size} bytes and "
            f"PostgreSQL keeps {MAX_IDENTIFIER_BYTES}. "
            f"Use a name of at most {MAX_IDENTIFIER_BYTES - len(longest)} bytes."
        )
        raise InvalidOption(msg)
    return table_name


def check_name(metadata: MetaData, table_name: str, part: str) -> str:
    """The name of a check constraint: whole, or only its part where the naming convention adds the table."""
    return part if _adds_the_table(metadata, "ck", CheckConstraint) else f"{table_name}_{part}_ck"


def index_name(metadata: MetaData, table_name: str, part: str) -> str:
    """The name of an index: whole, or only its part where the naming convention adds the table."""
    return part if _adds_the_table(metadata, "ix", Index) else f"{table_name}_{part}"


def _adds_the_table(metadata: MetaData, key: str, kind: type[CheckConstraint | Index]) -> bool:
    conventions = dict[Any, Any](metadata.naming_convention)
    convention = str(conventions.get(key) or conventions.get(kind) or "")
    return "%(constraint_name)" in convention and "%(table_name)" in convention


def quoted(name: str, schema: str | None = None) -> str:
    """A name as SQL, quoted if it needs to be, after its schema if it has one."""
    return _preparer.quote(name) if schema is None else f"{_preparer.quote(schema)}.{_preparer.quote(name)}"


def check_engine(engine: object) -> None:
    """Refuse what is no asynchronous engine."""
    if not isinstance(engine, AsyncEngine):
        msg = f"engine must be an AsyncEngine, made by create_async_engine(…), not a {type(engine).__name__}."
        raise InvalidOptionType(msg)


def check_given(engine: object) -> None:
    """Refuse to do without an engine where one is needed."""
    if engine is None:
        check_engine(engine)


def schema_map_of(engine: AsyncEngine | None) -> Mapping[str | None, str | None] | None:
    """The engine's `schema_translate_map`: workers look where messages are published. Tests may have no engine."""
    if engine is None:
        return None
    check_engine(engine)
    schema_map: Mapping[str | None, str | None] | None = engine.get_execution_options().get("schema_translate_map")
    return schema_map


def schema_of(table: Table, schema_map: Mapping[str | None, str | None] | None = None) -> str | None:
    """The table's schema after SQLAlchemy's `schema_translate_map`."""
    return table.schema if schema_map is None else schema_map.get(table.schema, table.schema)


def quoted_name(table: Table, schema_map: Mapping[str | None, str | None] | None = None) -> str:
    """The table's name as SQL, with its schema, after SQLAlchemy's `schema_translate_map`."""
    return quoted(table.name, schema_of(table, schema_map))


class AnyNames(Protocol):
    """What statements and wake-ups need to know about an engine's tables; hashable."""

    @property
    def channel(self) -> str:
        """The channel of the wake-ups."""
        ...

    def places(self) -> Mapping[str, str]:
        """What stands for `{name}` in the statements, as SQL text."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Names:
    """Everything that statements of the queue need to know about the tables, as SQL text."""

    table: str
    dead: str | None
    channel: str
    former_index: str = ""
    """The index that tables of 0.3 to 0.19 have, until their last process is gone."""

    @classmethod
    def of(
        cls,
        table: Table,
        dlq_table: Table | None = None,
        schema_map: Mapping[str | None, str | None] | None = None,
    ) -> "Names":
        """Names of an outbox table and, if there is one, of its dead-letter table."""
        return _names(table, dlq_table) if not schema_map else cls._mapped(table, dlq_table, schema_map)

    @classmethod
    def _mapped(
        cls, table: Table, dlq_table: Table | None, schema_map: Mapping[str | None, str | None] | None = None
    ) -> "Names":
        return cls(
            table=quoted_name(table, schema_map),
            dead=None if dlq_table is None else quoted_name(dlq_table, schema_map),
            channel=f"outbox_{table.name}",
            former_index=quoted(f"{table.name}_pending_idx", schema_of(table, schema_map)),
        )

    def places(self) -> Mapping[str, str]:
        """What stands for `{table}` and `{dead}`."""
        return {"table": self.table} if self.dead is None else {"table": self.table, "dead": self.dead}


# Asked for with every message that is published.
_names = lru_cache(maxsize=256)(Names._mapped)

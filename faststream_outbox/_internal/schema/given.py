"""The tables that somebody was given, and whether they are what they were given as.

A table of another kind is refused where it is given, and not when the first statement fails. `Tables` are those that
somebody looks at or works with: any of them may be missing. Made by `Overview`, by the doctor, by the dashboard and by
the command line; the broker, the queue's client, `Outbox` and the inbox check single ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import MetaData, Table

from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox._internal.schema.tables import make_dlq_table, make_inbox_table, make_outbox_table
from faststream_outbox.errors import InvalidOption, InvalidOptionType


@cache
def _columns(factory: Callable[[MetaData], Table]) -> frozenset[str]:
    return frozenset(column.name for column in factory(MetaData()).columns)


def check_tables(outbox_table: object, dlq_table: object) -> None:
    """Refuse what is no outbox, and what is neither None nor a table of dead letters."""
    _check("outbox_table", outbox_table, make_outbox_table, make_dlq_table, "a table of dead letters")
    if dlq_table is not None:
        _check("dlq_table", dlq_table, make_dlq_table, make_outbox_table, "a queue's table")


def check_inbox(given: object) -> None:
    """Refuse what is no table of receipts."""
    _check("table", given, make_inbox_table, make_outbox_table, "a queue's table")


def check_log(given: object, option: str = "log_tables") -> None:
    """Refuse what is neither None nor the tables of a log."""
    if given is not None and not isinstance(given, LogTables):
        msg = (
            f"{option} must be what make_log_tables returns, not a {type(given).__name__}: "
            f"{option}=make_log_tables(metadata, 'outbox_log')."
        )
        raise InvalidOptionType(msg)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables that there are; None where there is none."""

    table: Table | None = None
    """The queues'."""
    dlq_table: Table | None = None
    """The dead letters'."""
    log_tables: LogTables | None = None
    """The topics'."""
    inbox_table: Table | None = None
    """The receipts'."""

    def check(self) -> None:
        """Refuse what is no such table."""
        if self.table is not None:
            check_tables(self.table, self.dlq_table)
        check_log(self.log_tables)
        if self.inbox_table is not None:
            check_inbox(self.inbox_table)

    @property
    def all(self) -> Sequence[Table]:
        """Every one of them."""
        single = [table for table in (self.table, self.dlq_table, self.inbox_table) if table is not None]
        return [*single, *(() if self.log_tables is None else self.log_tables.all)]

    def or_else(self, other: "Tables") -> "Tables":
        """These, and in the place of each that is missing the other's."""
        return Tables(
            other.table if self.table is None else self.table,
            other.dlq_table if self.dlq_table is None else self.dlq_table,
            other.log_tables if self.log_tables is None else self.log_tables,
            other.inbox_table if self.inbox_table is None else self.inbox_table,
        )

    def keywords(self) -> dict[str, Any]:
        """What constructors that take tables call them."""
        return {
            "table": self.table,
            "dlq_table": self.dlq_table,
            "log_tables": self.log_tables,
            "inbox_table": self.inbox_table,
        }


def _check(
    option: str,
    given: object,
    factory: Callable[[MetaData], Table],
    other: Callable[[MetaData], Table],
    other_kind: str,
) -> None:
    call = f"{factory.__name__}(metadata)"
    if not isinstance(given, Table):
        msg = f"{option} must be a table made by {call}, not {given!r}."
        raise InvalidOptionType(msg)
    known = frozenset(column.name for column in given.columns)
    missing = _columns(factory) - known
    if not missing:
        return
    if known >= _columns(other):
        msg = f"{option} is {given.name!r}, {other_kind}. Pass the one made by {call}."
        raise InvalidOption(msg)
    msg = f"{option} is {given.name!r}, which lacks the columns {', '.join(sorted(missing))}. Make it with {call}."
    raise InvalidOption(msg)

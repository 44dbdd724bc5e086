"""Whether what was given as a table is one: looked at where it is given, not when the first statement fails.

Called by the broker, by the queue's client and by the inbox.
"""

from collections.abc import Callable
from functools import cache

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

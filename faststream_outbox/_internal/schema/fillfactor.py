"""How full the pages of a table are made, as a part of CREATE TABLE that `create_all` and Alembic's migrations carry.

SQLAlchemy 2.1 has an option for it. 2.0 has none, but writes what it is given as the access method as it is, and that
stands just before. Used by the factories of tables and by whoever describes one.
"""

from typing import Any

from sqlalchemy import Table
from sqlalchemy.dialects.postgresql.base import PGDialect

_INFO = "faststream_outbox_fillfactor"
_OPTIONS_OF_TABLES: Any = dict(PGDialect.construct_arguments or ())[Table]


def set_fillfactor(table: Table, percent: int) -> None:
    """Have pages filled so far: the rest is room for new versions of rows."""
    table.info[_INFO] = percent
    options = table.dialect_options["postgresql"]
    if "with" in _OPTIONS_OF_TABLES:
        options["with"] = {"fillfactor": percent}
    else:
        options["using"] = f"heap WITH (fillfactor = {percent})"


def fillfactor_of(table: Table) -> int | None:
    """How far pages are to be filled; None is PostgreSQL's own choice."""
    percent: int | None = table.info.get(_INFO)
    return percent

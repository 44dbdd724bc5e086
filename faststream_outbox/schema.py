"""The tables: what they look like, what they are called, and whether a database has them as they should be.

Used by applications (`make_outbox_table`, `make_dlq_table`, `make_inbox_table`, Alembic) and by every engine.
"""

from faststream_outbox._internal.schema.autovacuum import outbox_autovacuum_ddl, outbox_autovacuum_rollback_ddl
from faststream_outbox._internal.schema.check import find_differences, validate_schema
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.schema.names import Names, checked_identifier
from faststream_outbox._internal.schema.tables import make_dlq_table, make_inbox_table, make_outbox_table

__all__ = [
    "Difference",
    "Names",
    "checked_identifier",
    "find_differences",
    "make_dlq_table",
    "make_inbox_table",
    "make_outbox_table",
    "outbox_autovacuum_ddl",
    "outbox_autovacuum_rollback_ddl",
    "validate_schema",
]

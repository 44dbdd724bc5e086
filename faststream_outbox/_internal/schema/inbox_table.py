"""The table of receipts, on the caller's own MetaData, for Alembic or `create_all`.

A row says that the effects of one message, from one source, for one consumer, are in this database: it was committed
together with them. The primary key is what decides; the index by time is for retention alone. `response` is what the
handler answered, where that is kept. The package never creates or alters the table by itself.
"""

from sqlalchemy import Column, DateTime, Index, LargeBinary, MetaData, String, Table, text
from sqlalchemy.dialects.postgresql import JSONB

from faststream_outbox._internal.schema.names import check_metadata, checked_identifier, index_name
from faststream_outbox._internal.schema.tables import NAME_LENGTH

SOURCE_LENGTH = 1024
_SUFFIXES = ("_received_idx",)


def make_inbox_table(metadata: MetaData, table_name: str = "inbox") -> Table:
    """Describe the receipts' table on `metadata`, under its schema and naming convention.

    metadata: yours, so that your migrations know the table.
    table_name: one table holds the receipts of any number of consumers.
    """
    check_metadata(metadata, "make_inbox_table")
    name = checked_identifier(table_name, _SUFFIXES)
    table = Table(
        name,
        metadata,
        Column("consumer", String(NAME_LENGTH), primary_key=True),
        Column("source", String(SOURCE_LENGTH), primary_key=True),
        Column("message_id", String(NAME_LENGTH), primary_key=True),
        Column("received_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        Column("response", LargeBinary, nullable=True),
        Column("response_type", String(NAME_LENGTH), nullable=True),
        Column("response_headers", JSONB, nullable=True),
    )
    Index(index_name(metadata, name, "received_idx"), table.c.received_at)
    return table

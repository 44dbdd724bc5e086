"""The tables of queues, dead letters and receipts, on the caller's own MetaData, for Alembic or `create_all`.

The package never creates or alters them by itself. No index of a queue mentions a lease column and a page is filled to
less than half when rows are inserted, so that claiming a message is a HOT update: it touches no index, and the row's
second version finds room on the same page. Rows of a queue are short-lived, so the space is cheap.

A receipt says that the effects of one message, from one source, for one consumer, are in this database: it was
committed together with them. Its primary key is what decides; the index by time is for retention alone.

How full pages are made is a part of CREATE TABLE that SQLAlchemy 2.1 has an option for. 2.0 has none, but writes what
it is given as the access method as it is, and that stands just before. Used by applications and by whoever describes
one.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    and_,
    or_,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID
from sqlalchemy.dialects.postgresql.base import PGDialect

from faststream_outbox._internal.schema.names import check_metadata, check_name, checked_identifier, index_name

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


NAME_LENGTH = 255
FILLFACTOR = 45

_OUTBOX_SUFFIXES = (
    *("_timer_id_uq", "_key_due_idx", "_waiting_idx", "_claim_idx", "_later_idx", "_key_idx"),
    *("_lease_ck", "_id_seq"),
)
_DLQ_SUFFIXES = ("_queue_failed_idx", "_key_idx", "_id_seq")


def make_outbox_table(metadata: MetaData, table_name: str = "outbox") -> Table:
    """Describe the queues' table on `metadata`, under its schema and naming convention.

    metadata: yours, so that your migrations know the table.
    table_name: one table holds any number of queues.
    """
    check_metadata(metadata, "make_outbox_table")
    name = checked_identifier(table_name, _OUTBOX_SUFFIXES)
    table = Table(
        name,
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=True),
        Column("queue", String(NAME_LENGTH), nullable=False),
        Column("payload", LargeBinary, nullable=False),
        Column("headers", JSONB, nullable=True),
        Column("attempts_count", BigInteger, nullable=False, server_default=text("0")),
        Column("deliveries_count", BigInteger, nullable=False, server_default=text("0")),
        Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        Column("next_attempt_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        Column("first_attempt_at", DateTime(timezone=True), nullable=True),
        Column("last_attempt_at", DateTime(timezone=True), nullable=True),
        Column("acquired_at", DateTime(timezone=True), nullable=True),
        Column("acquired_token", UUID(as_uuid=True), nullable=True),
        Column("timer_id", String(NAME_LENGTH), nullable=True),
        Column("key", Text, nullable=True),
        Column("priority", SmallInteger, nullable=False, server_default=text("0")),
        # A column of its own, because a row's id is drawn anew by restores and copies, and headers are the user's.
        Column("message_id", UUID(as_uuid=True), nullable=False, server_default=text("gen_random_uuid()")),
        CheckConstraint("(acquired_token IS NULL) = (acquired_at IS NULL)", name=check_name(metadata, name, "lease")),
    )
    set_fillfactor(table, FILLFACTOR)
    columns = table.c
    due = (columns.queue, columns.priority, columns.next_attempt_at, columns.id)
    Index(index_name(metadata, name, "claim_idx"), *due, postgresql_where=columns.key.is_(None))
    Index(index_name(metadata, name, "key_due_idx"), *due, postgresql_where=columns.key.is_not(None))
    by_id = (columns.queue, columns.key, columns.id)
    # A message is in one of two: what was due at once and is not put off since, or what a timer or a retry has put off.
    # So a key's pending timers are not in the way of its other messages.
    at_once = and_(columns.timer_id.is_(None), columns.next_attempt_at <= columns.created_at)
    later = or_(columns.timer_id.is_not(None), columns.next_attempt_at > columns.created_at)
    Index(index_name(metadata, name, "key_idx"), *by_id, postgresql_where=and_(columns.key.is_not(None), at_once))
    Index(index_name(metadata, name, "later_idx"), *by_id, postgresql_where=and_(columns.key.is_not(None), later))
    Index(
        index_name(metadata, name, "waiting_idx"),
        columns.queue,
        columns.key,
        columns.last_attempt_at,
        columns.next_attempt_at,
        columns.id,
        postgresql_where=and_(columns.key.is_not(None), later),
    )
    Index(
        index_name(metadata, name, "timer_id_uq"),
        columns.queue,
        columns.timer_id,
        unique=True,
        postgresql_where=columns.timer_id.is_not(None),
    )
    return table


def make_dlq_table(metadata: MetaData, table_name: str = "outbox_dlq") -> Table:
    """Describe the dead letters' table on `metadata`, under its schema and naming convention.

    metadata: yours, so that your migrations know the table.
    table_name: one table for the dead letters of all queues.
    """
    check_metadata(metadata, "make_dlq_table")
    name = checked_identifier(table_name, _DLQ_SUFFIXES)
    table = Table(
        name,
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=True),
        Column("original_id", BigInteger, nullable=False),
        Column("message_id", UUID(as_uuid=True), nullable=False),
        Column("queue", String(NAME_LENGTH), nullable=False),
        Column("payload", LargeBinary, nullable=False),
        Column("headers", JSONB, nullable=True),
        Column("key", Text, nullable=True),
        Column("priority", SmallInteger, nullable=False, server_default=text("0")),
        Column("timer_id", String(NAME_LENGTH), nullable=True),
        Column("attempts_count", BigInteger, nullable=False, server_default=text("0")),
        Column("deliveries_count", BigInteger, nullable=False, server_default=text("0")),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Column("first_attempt_at", DateTime(timezone=True), nullable=True),
        Column("last_attempt_at", DateTime(timezone=True), nullable=True),
        Column("failed_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        Column("failure_reason", String(64), nullable=False),
        Column("last_exception", Text, nullable=True),
        Column("error_type", Text, nullable=True),
        Column("error_message", Text, nullable=True),
        Column("traceback", Text, nullable=True),
    )
    columns = table.c
    Index(index_name(metadata, name, "queue_failed_idx"), columns.queue, columns.failed_at)
    Index(index_name(metadata, name, "key_idx"), columns.queue, columns.key, postgresql_where=columns.key.is_not(None))
    return table


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

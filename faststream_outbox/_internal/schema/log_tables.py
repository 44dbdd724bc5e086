"""The tables of the ordered log, on the caller's own MetaData, for Alembic, `create_all` or `Outbox.setup`.

Seven plain tables; no function, trigger or extension in the database. `position` has no default: an
INSERT that does not draw its number as the library does fails, instead of breaking the order. The
numbers come from the sequence behind `drawn` of the head, which a table carries through migrations
and dumps. Cursors and leases are updated in place (HOT): no index mentions what an update changes. The
head is a new row with each tick, and the newest counts: whoever reads it meets no old version, however
long a snapshot is held.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import md5

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, UUID

from faststream_outbox._internal.schema.names import (
    check_metadata,
    check_name,
    checked_identifier,
    index_name,
    quoted,
    quoted_name,
)
from faststream_outbox._internal.schema.tables import NAME_LENGTH, set_fillfactor
from faststream_outbox.errors import InvalidOption

URI_LENGTH = 1024
LAST_SLOT = 255

_LOG_SUFFIXES = (
    "_event_id_uq",
    "_body_ck",
    "_head_drawn_seq",
    "_deferred_key_idx",
    "_deferred_wait_idx",
    "_ticks_at_idx",
)
_OFFSETS_SUFFIXES = ("_slots_ck",)


@dataclass(frozen=True, slots=True)
class LogTables:
    """The tables of one log."""

    log: Table
    head: Table
    gaps: Table
    ticks: Table
    offsets: Table
    members: Table
    deferred: Table

    @property
    def all(self) -> tuple[Table, ...]:
        """Every table, the log first."""
        return (self.log, self.head, self.gaps, self.ticks, self.offsets, self.members, self.deferred)

    @property
    def is_partitioned(self) -> bool:
        """Whether the log consists of partitions by position."""
        return self.log.dialect_options["postgresql"]["partition_by"] is not None


@dataclass(frozen=True, slots=True)
class LogNames:
    """Everything that statements of the log need to know about the tables, as SQL text."""

    texts: tuple[tuple[str, str], ...]
    channel: str

    @classmethod
    def of(cls, tables: LogTables, schema_map: Mapping[str | None, str | None] | None = None) -> "LogNames":
        """Names of a log's tables."""
        names = {place: quoted_name(getattr(tables, name), schema_map) for place, name in cls._NAMED}
        names["head"] = f"(select true as one, n.* from {names['head_table']} n order by n.id desc limit 1)"
        names["gaps"] = _open_gaps(names["head"], names["gap_table"])
        schema = tables.head.schema if schema_map is None else schema_map.get(tables.head.schema, tables.head.schema)
        sequence = quoted(f"{tables.head.name}_drawn_seq", schema)
        literal = sequence.replace("'", "''")
        return cls((*names.items(), ("sequence", sequence), ("sequence_name", literal)), _channel(tables.log, schema))

    def places(self) -> Mapping[str, str]:
        """What stands for `{log}`, `{ticks}` and the like; `{head}` and `{gaps}` are what is to be read there now."""
        return dict(self.texts)

    _NAMED = (
        ("log", "log"),
        ("head_table", "head"),
        ("gap_table", "gaps"),
        ("ticks", "ticks"),
        ("offsets", "offsets"),
        ("members", "members"),
        ("deferred", "deferred"),
    )


def _open_gaps(newest: str, table: str) -> str:
    """Every gap: those that a later tick has bounded, and those that wait for it."""
    return (
        f"(select r.lo, r.hi from {newest} h cross join lateral (select h.lows, h.highs union all"
        f" select b.lows, b.highs from {table} b where b.bound >= h.floor) p"
        " cross join lateral unnest(p.lows, p.highs) r (lo, hi))"
    )


def _channel(log: Table, schema: str | None) -> str:
    """The channel of a log's wake-ups; logs of one name in several schemas have their own."""
    name = f"outbox_{log.name}"
    if schema is None:
        return name
    begin = name.encode()[:30].decode(errors="ignore")  # PostgreSQL counts bytes
    return f"{begin}_{md5(f'{schema}.{log.name}'.encode(), usedforsecurity=False).hexdigest()[:16]}"


def make_log_tables(
    metadata: MetaData,
    outbox_table: str = "outbox",
    offsets_table: str | None = None,
    *,
    partitioned: bool = False,
) -> LogTables:
    """Describe the log's tables on a MetaData, under its schema and naming convention.

    metadata: the application's own.
    outbox_table: the name of the log; the other tables are named after it.
    offsets_table: another name for the table of positions than `…_offsets`.
    partitioned: partition the log by position: old parts are dropped instead of deleted, and an event_id is unique
        within a partition only.
    """
    check_metadata(metadata, "make_log_tables")
    name = checked_identifier(outbox_table, _LOG_SUFFIXES)
    offsets_name = f"{name}_offsets" if offsets_table is None else offsets_table
    checked_identifier(offsets_name, _OFFSETS_SUFFIXES)
    key = name if metadata.schema is None else f"{metadata.schema}.{name}"
    if key in metadata.tables:
        msg = (
            f"The MetaData has a table {name!r} already, such as the queue's. Name the log otherwise: "
            "make_log_tables(metadata, 'outbox_log')."
        )
        raise InvalidOption(msg)
    return LogTables(
        log=_log(metadata, name, partitioned=partitioned),
        head=_head(metadata, f"{name}_head"),
        gaps=_gaps(metadata, f"{name}_gaps"),
        ticks=_ticks(metadata, f"{name}_ticks"),
        offsets=_offsets(metadata, offsets_name),
        members=_members(metadata, f"{name}_members"),
        deferred=_deferred(metadata, f"{name}_deferred"),
    )


def _log(metadata: MetaData, name: str, *, partitioned: bool) -> Table:
    table = Table(
        name,
        metadata,
        Column("position", BigInteger, primary_key=True, autoincrement=False),
        Column("uri", String(URI_LENGTH), nullable=False),
        Column("slot", SmallInteger, nullable=False),
        # json and not jsonb: the text comes back as it was, down to 1.0 and the order of keys.
        Column("payload", JSON, nullable=True),
        Column("body", LargeBinary, nullable=True),
        Column("metadata", JSON, nullable=False),
        Column("event_id", UUID(as_uuid=True), nullable=True),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Column("transaction_id", BigInteger, nullable=False),
        CheckConstraint("(payload IS NULL) <> (body IS NULL)", name=check_name(metadata, name, "body")),
        postgresql_partition_by="RANGE (position)" if partitioned else None,
    )
    if not partitioned:
        present = table.c.event_id.is_not(None)
        Index(index_name(metadata, name, "event_id_uq"), table.c.event_id, unique=True, postgresql_where=present)
    return table


def _head(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("high", BigInteger, nullable=False, server_default=text("0")),
        Column("tick", BigInteger, nullable=False, server_default=text("0")),
        Column("snapshot", Text, nullable=True),
        # Gaps that the tick has found, which the next one bounds; and below which bound none is open.
        Column("lows", ARRAY(BigInteger), nullable=False, server_default=text("'{}'")),
        Column("highs", ARRAY(BigInteger), nullable=False, server_default=text("'{}'")),
        Column("floor", BigInteger, nullable=False, server_default=text("0")),
        # Of looking into gaps in several slices: the first one's snapshot, how far numbers were drawn, the last gap.
        Column("round", Text, nullable=True),
        Column("reach", BigInteger, nullable=True),
        Column("looked_bound", BigInteger, nullable=True),
        Column("looked_lo", BigInteger, nullable=True),
        # Where it was written: another server, database or sequence begins anew with what it finds.
        Column("origin", Text, nullable=True),
        Column("at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
        Column("drawn", BigInteger, Identity(always=False), nullable=False),
    )


def _gaps(metadata: MetaData, name: str) -> Table:
    return Table(
        name,
        metadata,
        Column("bound", BigInteger, primary_key=True, autoincrement=False),
        Column("lo", BigInteger, primary_key=True, autoincrement=False),
        Column("lows", ARRAY(BigInteger), nullable=False),
        Column("highs", ARRAY(BigInteger), nullable=False),
        Column("since", DateTime(timezone=True), nullable=False),
    )


def _ticks(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("tick", BigInteger, primary_key=True, autoincrement=False),
        Column("lows", ARRAY(BigInteger), nullable=False),
        Column("highs", ARRAY(BigInteger), nullable=False),
        Column("count", Integer, nullable=False),
        Column("at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
    )
    Index(index_name(metadata, name, "at_idx"), table.c.at)
    return table


def _offsets(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("consumer_group", String(NAME_LENGTH), primary_key=True),
        Column("uri", String(URI_LENGTH), primary_key=True, server_default=text("''")),
        Column("lo", SmallInteger, primary_key=True, autoincrement=False),
        Column("hi", SmallInteger, nullable=False),
        Column("tick", BigInteger, nullable=False, server_default=text("0")),
        Column("position", BigInteger, nullable=False, server_default=text("0")),
        Column("epoch", BigInteger, nullable=False, server_default=text("0")),
        Column("owner", UUID(as_uuid=True), nullable=True),
        Column("until", DateTime(timezone=True), nullable=True),
        Column("updated_at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
        # After an owner has died: the message that runs, since when it is noted, and how often an owner died with it.
        Column("suspect", BigInteger, nullable=True),
        Column("suspect_epoch", BigInteger, nullable=True),
        Column("crashes", SmallInteger, nullable=False, server_default=text("0")),
        # Counts in the row of slot 0, which a group always has, however its spans are cut and joined.
        Column("paused_at", DateTime(timezone=True), nullable=True),
        CheckConstraint(f"lo >= 0 AND lo <= hi AND hi <= {LAST_SLOT}", name=check_name(metadata, name, "slots")),
    )
    set_fillfactor(table, 30)
    return table


def _members(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("consumer_group", String(NAME_LENGTH), primary_key=True),
        Column("uri", String(URI_LENGTH), primary_key=True, server_default=text("''")),
        Column("member", UUID(as_uuid=True), primary_key=True),
        Column("until", DateTime(timezone=True), nullable=False),
    )
    set_fillfactor(table, 50)
    return table


def _deferred(metadata: MetaData, name: str) -> Table:
    table = Table(
        name,
        metadata,
        Column("consumer_group", String(NAME_LENGTH), primary_key=True),
        Column("uri", String(URI_LENGTH), primary_key=True),
        Column("position", BigInteger, primary_key=True, autoincrement=False),
        Column("tick", BigInteger, nullable=False),
        Column("slot", SmallInteger, nullable=False),
        Column("key", String(URI_LENGTH), nullable=False),
        Column("state", String(8), nullable=False),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        Column("due", DateTime(timezone=True), nullable=True),
        Column("first_attempt_at", DateTime(timezone=True), nullable=True),
        Column("updated_at", DateTime(timezone=True), nullable=False, server_default=text("clock_timestamp()")),
        Column("error_type", Text, nullable=True),
        Column("error_message", Text, nullable=True),
        Column("traceback", Text, nullable=True),
    )
    columns = table.c
    Index(
        index_name(metadata, name, "key_idx"),
        columns.consumer_group,
        columns.uri,
        columns.key,
        columns.tick,
        columns.position,
    )
    # What is parked may be very much, and need not be read by whoever looks for what is to run.
    Index(
        index_name(metadata, name, "wait_idx"),
        columns.consumer_group,
        columns.uri,
        columns.slot,
        columns.key,
        columns.tick,
        columns.position,
        postgresql_where=text("state <> 'parked'"),
    )
    return table

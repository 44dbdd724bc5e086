"""What the doctor's checks are made of: what they look at, from when on something is wrong, and what they answer.

A `Check` asks its `Patient` by named statements, and a pure function beside it makes a `Finding` of the answer: how bad
it is, what it costs, and the commands that repair it. `Limits` are given by whoever wants to hear of something sooner.
The page on the doctor has a row for each check; a test holds it. Findings are shown by the command line and the
dashboard.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.schema.names import AnyNames, Names, quoted_name, schema_map_of
from faststream_outbox._internal.sql.doctor_rows import ServerRow
from faststream_outbox._internal.sql.statements import ShapeT, named, statements
from faststream_outbox.errors import InvalidOption

JSON: TypeAlias = "str | int | float | bool | Sequence[JSON] | Mapping[str, JSON] | None"
"""What a finding knows, as it can be written down."""
Severity = Literal["ok", "notice", "warning", "critical"]
"""How bad a finding is."""

SEVERITIES: tuple[Severity, ...] = ("ok", "notice", "warning", "critical")
"""From good to bad."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one check about one thing; a check that finds nothing wrong answers once, with "ok"."""

    check: str
    """The name of the check, as in the documentation's table."""
    severity: Severity
    """"ok": nothing to do. "notice": worth knowing. "warning": it costs something now. "critical": messages wait or may
    be lost."""
    title: str
    """One line without a full stop."""
    detail: str
    """What was seen, and why it is so; may have several lines. Empty where the title says all."""
    cost: str
    """What it costs, in one sentence; empty where it costs nothing."""
    repair: str | None
    """The commands that repair it, ready to be pasted: SQL, unless the first line begins with `# Python` or `# shell`.
    None if it is left to you, and then the detail says what to do."""
    facts: Mapping[str, JSON] = field(default_factory=dict[str, "JSON"])
    """The numbers and names behind it, for programs."""


def worst(findings: Sequence[Finding]) -> Severity:
    """The worst severity among them; "ok" if there are none."""
    found = {finding.severity for finding in findings}
    for severity in reversed(SEVERITIES):
        if severity in found:
            return severity
    return "ok"


MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What is below all of these is nobody's fault.

    transaction_seconds: how long a transaction may be open; critical from twelve times that on.
    kept_transactions: how many transactions may have begun since the oldest that a slot or a standby wants to see.
    slot_seconds: how long nobody may use a replication slot.
    kept_wal_bytes: how much WAL an unused slot may keep, whatever its age.
    gap_seconds: how long a gap of the log may be open.
    dead_rows: how many dead rows a table may have, and twice what autovacuum waits for.
    frozen_age: how many transactions may have begun since the oldest in a table.
    unused_index_rows: after how many inserted rows an index that was never read is mentioned.
    connections: the share of the connections that may be taken; critical from nine tenths on.
    notifications: the share of the queue of notifications that may be full; critical from half on.
    clock_seconds: how far the clocks of this machine and of the server may be apart.
    ready_seconds: how long a message may be due while nobody takes it, also behind one that failed.
    dead_letters: how many messages of a queue may die in an hour.
    group_seconds: how long a group may be silent.
    pause_seconds: how long a pause may last.
    """

    transaction_seconds: float = 5 * MINUTE
    kept_transactions: int = 100_000
    slot_seconds: float = 5 * MINUTE
    kept_wal_bytes: int = 2**30
    gap_seconds: float = MINUTE
    dead_rows: int = 10_000
    frozen_age: int = 1_000_000_000
    unused_index_rows: int = 100_000
    connections: float = 0.75
    notifications: float = 0.1
    clock_seconds: float = 2.0
    ready_seconds: float = 5 * MINUTE
    dead_letters: int = 100
    group_seconds: float = 3 * DAY
    pause_seconds: float = DAY


@dataclass(frozen=True, slots=True)
class Patient:
    """Everything that a check may look at."""

    engine: AsyncEngine
    """For whoever needs SQLAlchemy; apart from the application's."""
    connection: DedicatedConnection
    tables: Tables
    limits: Limits
    server: ServerRow
    differences: list[Sequence[Difference] | Exception] = field(default_factory=list[Sequence[Difference] | Exception])
    """What the first check of the schema found, or why it could not, for those that come later."""

    async def ask(self, shape: type[ShapeT], file: str, name: str, **values: Any) -> list[ShapeT]:
        """The rows of a statement of the doctor's."""
        return named(shape, await self.fetch(file, name, values))

    async def fetch(self, file: str, name: str, values: Mapping[str, Any]) -> Sequence[Row]:
        """The same, as they come."""
        return await self.connection.fetch(statements(file, self.names_of(file))[name], values)

    def names_of(self, file: str) -> AnyNames:
        """Whose tables the statements of a file name."""
        if file == "doctor_log":
            return self.log
        if self.tables.table is not None:
            return self.queue
        # Statements about the server name no table.
        return Names("", None, "") if self.tables.log_tables is None else self.log

    @property
    def queue(self) -> Names:
        """Names of the queues' tables."""
        if self.tables.table is None:
            msg = "The doctor was given no table of queues: pass table=make_outbox_table(metadata)."
            raise InvalidOption(msg)
        return Names.of(self.tables.table, self.tables.dlq_table, schema_map_of(self.engine))

    @property
    def log(self) -> LogNames:
        """Names of the log's tables."""
        if self.tables.log_tables is None:
            msg = "The doctor was given no log: pass log_tables=make_log_tables(metadata)."
            raise InvalidOption(msg)
        return LogNames.of(self.tables.log_tables, schema_map_of(self.engine))

    @property
    def names(self) -> list[str]:
        """Every table as SQL."""
        return [quoted_name(table, schema_map_of(self.engine)) for table in self.tables.all]

    def name(self, table: Table) -> str:
        """A table as SQL."""
        return quoted_name(table, schema_map_of(self.engine))


Part = Literal["queue", "dead", "log"]


@dataclass(frozen=True, slots=True)
class Check:
    """One question about the system."""

    name: str
    sees: str
    """What it finds, as the page says it."""
    healthy: str
    """The title where there is nothing wrong."""
    run: Callable[[Patient], Awaitable[Sequence[Finding]]]
    needs: tuple[Part, ...] = ()

    def applies(self, tables: Tables) -> bool:
        """Whether the tables are there that it is about."""
        there = {"queue": tables.table, "dead": tables.dlq_table, "log": tables.log_tables}
        return all(there[part] is not None for part in self.needs)

    def fine(self) -> Finding:
        """Nothing is wrong."""
        return Finding(self.name, "ok", self.healthy, "", "", None)

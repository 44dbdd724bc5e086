"""The doctor: all checks, one after the other, on one connection of its own, each within a time limit.

Made from an engine and the tables that there are, as `Overview` is. The server is looked at first, then what stands in
the tables. A check that cannot run says in a finding of its own what is missing and what would allow it, and the others
run. Nothing is changed. Called by the command line, the dashboard, and applications.
"""

import asyncio
from collections.abc import Collection, Sequence

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.cause import CANCELLED, LOCKED, REFUSED, first_line, has_state, sqlstate_of
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.connections.opening import engine_apart
from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.finding import JSON, SEVERITIES, Check, Finding, Limits, Patient
from faststream_outbox._internal.doctor.queues import DEAD_LETTERS, HELD_KEYS, PARKED_KEYS, PAUSED_QUEUES, READY
from faststream_outbox._internal.doctor.schema import DEAD_IDS, IDS, INDEXES, PARTITIONS, POSITIONS, SCHEMA, UNLOGGED
from faststream_outbox._internal.doctor.server import (
    CLOCK,
    CONNECTIONS,
    DURABILITY,
    IDLE,
    LISTENER,
    NOTIFICATIONS,
    POOLER,
    RIGHTS,
    SERVER,
)
from faststream_outbox._internal.doctor.topics import GAPS, GROUPS, PAUSED_GROUPS
from faststream_outbox._internal.doctor.vacuum import (
    AUTOVACUUM,
    DEAD_ROWS,
    PREPARED,
    SLOTS,
    STANDBYS,
    TRANSACTIONS,
    WRAPAROUND,
)
from faststream_outbox._internal.options import check_seconds, check_text, nearest
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox._internal.schema.names import Names, schema_map_of, schema_of
from faststream_outbox._internal.sql.doctor_rows import ServerRow
from faststream_outbox._internal.sql.statements import named, statements
from faststream_outbox._internal.text import duration, quote
from faststream_outbox.errors import InvalidOption, InvalidOptionType, UnknownName

CHECKS: Sequence[Check] = (
    SERVER,
    RIGHTS,
    SCHEMA,
    INDEXES,
    UNLOGGED,
    IDS,
    DEAD_IDS,
    POSITIONS,
    PARTITIONS,
    DURABILITY,
    CLOCK,
    AUTOVACUUM,
    DEAD_ROWS,
    WRAPAROUND,
    TRANSACTIONS,
    PREPARED,
    SLOTS,
    STANDBYS,
    GAPS,
    CONNECTIONS,
    IDLE,
    POOLER,
    LISTENER,
    NOTIFICATIONS,
    READY,
    PAUSED_QUEUES,
    DEAD_LETTERS,
    HELD_KEYS,
    GROUPS,
    PAUSED_GROUPS,
    PARKED_KEYS,
)


_ABSENT = ("42P01", "3F000")
_UNKNOWN = ("42703", "42883", "42704")
COST = "Whatever it would have found is not known."


def failed(check: Check, error: Exception, patient: Patient) -> Finding:
    """A check that could not run."""
    said = quote(first_line(error))
    title, detail, repair = f"The check {check.name} could not run", f"The server or the driver said: {said}", None
    if has_state(error, REFUSED):
        title = f"The role {patient.server.role} may not run the check {check.name}"
        repair = repairs.grant_reading(_schemas(patient), _read(check, patient), patient.server.role) or None
    elif has_state(error, *_ABSENT):
        title = f"The check {check.name} misses a table"
        detail += ". The check schema prints what creates it."
    elif has_state(error, *_UNKNOWN):
        title = f"The check {check.name} misses a column or a function"
        detail += ". The check schema prints missing columns; servers before PostgreSQL 15 are not supported."
    elif has_state(error, CANCELLED, LOCKED) or isinstance(error, TimeoutError):
        title = f"The check {check.name} took too long"
        detail = (
            f"It was given up after {duration(patient.connection.timeout)}. Ask again when less is going on, "
            "or give it more time: Doctor(…, timeout=60)."
        )
    facts: dict[str, JSON] = {"error": said, "sqlstate": sqlstate_of(error)}
    return Finding(check.name, "notice", title, detail, COST, repair, facts)


def unreachable(error: Exception) -> Finding:
    """The server cannot be asked at all."""
    said = quote(first_line(error))
    detail = f"Connecting failed: {said}"
    return Finding(
        "server", "critical", "The server cannot be reached", detail, "Nothing can be examined.", None, {"error": said}
    )


def _read(check: Check, patient: Patient) -> list[str]:
    """The tables that a check reads, as SQL."""
    tables = patient.tables
    read = [tables.table] if "queue" in check.needs else []
    read += [tables.dlq_table] if "dead" in check.needs else []
    read += tables.log_tables.all if "log" in check.needs and tables.log_tables is not None else []
    return [patient.name(table) for table in read if table is not None]


def _schemas(patient: Patient) -> list[str]:
    """The schemas of the tables, where they are named."""
    schema_map = schema_map_of(patient.engine)
    return sorted({schema for table in patient.tables.all if (schema := schema_of(table, schema_map)) is not None})


TIMEOUT = 5.0


class Doctor:
    """Examines the tables of one database and the server that they are on.

    engine: of that database; a role that may read the tables is enough, and sees more as a member of `pg_monitor`.
    table: the queues' table, or None.
    dlq_table: the dead letters' table, or None.
    log_tables: the topics' tables, or None.
    inbox_table: the receipts' table, or None.
    timeout: seconds that one check may take.
    limits: from when on something is called old, many or full; None takes the usual ones.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        table: Table | None = None,
        dlq_table: Table | None = None,
        log_tables: LogTables | None = None,
        inbox_table: Table | None = None,
        timeout: float = TIMEOUT,
        limits: Limits | None = None,
    ) -> None:
        check_seconds("timeout", timeout)
        if table is None and dlq_table is not None:
            msg = "dlq_table has the dead letters of a table of queues: pass table=make_outbox_table(metadata) too."
            raise InvalidOption(msg)
        self._tables = Tables(table, dlq_table, log_tables, inbox_table)
        self._tables.check()
        self._engine = engine
        self._timeout = timeout
        self._limits = Limits() if limits is None else limits

    async def examine(self, *, only: Collection[str] | None = None) -> Sequence[Finding]:
        """Run the checks; the worst findings first. Changes nothing, and closes its connections.

        only: names of checks; None is all of them. Those of tables that were not given do not run.
        """
        names = [check.name for check in CHECKS]
        given: object = only
        if given is not None and (not isinstance(given, Collection) or isinstance(given, str | bytes)):
            msg = f"only must be a list of names of checks, not {type(given).__name__}."
            raise InvalidOptionType(msg)
        for name in only or ():
            check_text("each of only", name)
            if name not in names:
                msg = f"There is no check {name!r}; {nearest(name, names, 'check')}"
                raise UnknownName(msg)
        chosen = [check for check in CHECKS if check.applies(self._tables) and (only is None or check.name in only)]
        connection = DedicatedConnection(self._engine, timeout=self._timeout, on_standby=True, role="overview")
        apart = engine_apart(self._engine)
        try:
            return await self._examine(chosen, connection, apart)
        finally:
            await connection.close()
            await apart.dispose()

    async def _examine(
        self, checks: Sequence[Check], connection: DedicatedConnection, apart: AsyncEngine
    ) -> Sequence[Finding]:
        asked = statements("doctor", Names("", None, ""))["server"]
        try:
            (server,) = named(ServerRow, await connection.fetch(asked, {}))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the finding
            return [unreachable(error)]
        patient = Patient(apart, connection, self._tables, self._limits, server)
        found: list[Finding] = []
        for check in checks:
            found += await self._run(check, patient)
        return sorted(found, key=lambda finding: -SEVERITIES.index(finding.severity))

    async def _run(self, check: Check, patient: Patient) -> Sequence[Finding]:
        try:
            async with asyncio.timeout(2 * self._timeout):
                return await check.run(patient) or [check.fine()]
        except Exception as error:  # noqa: BLE001 - one check that fails must not hide what the others find
            return [failed(check, error, patient)]

"""All checks, one after the other, on one connection of its own, each within a time limit.

Made from an engine and the tables that there are, as `Overview` is. A check that cannot run says so in a finding of its
own, and the others run. Called by the command line, the dashboard, and applications.
"""

import asyncio
from collections.abc import Collection, Sequence

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.apart import engine_apart
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.checks import CHECKS
from faststream_outbox._internal.doctor.failure import failed, unreachable
from faststream_outbox._internal.doctor.finding import SEVERITIES, Finding
from faststream_outbox._internal.doctor.limits import Limits
from faststream_outbox._internal.doctor.patient import Examined, Patient
from faststream_outbox._internal.options import check_seconds, check_text, nearest
from faststream_outbox._internal.schema.given import check_inbox, check_log, check_tables
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox._internal.schema.names import Names
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.doctor_rows import ServerRow
from faststream_outbox._internal.sql.rows import named
from faststream_outbox.errors import InvalidOption, InvalidOptionType, UnknownName

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
        if table is not None:
            check_tables(table, dlq_table)
        elif dlq_table is not None:
            msg = "dlq_table has the dead letters of a table of queues: pass table=make_outbox_table(metadata) too."
            raise InvalidOption(msg)
        check_log(log_tables)
        if inbox_table is not None:
            check_inbox(inbox_table)
        self._engine = engine
        self._tables = Examined(table, dlq_table, log_tables, inbox_table)
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

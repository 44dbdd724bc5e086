"""The tables as the database has them: what differs from what is needed, indexes, and tables that a crash empties.

What is needed and how it is repaired is known to `schema.check`; this sorts what it says by subject.
"""

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding, Severity
from faststream_outbox._internal.doctor.patient import Examined, Patient
from faststream_outbox._internal.doctor.spoken import counted, quote, size
from faststream_outbox._internal.schema.check import (
    find_differences,
    find_inbox_differences,
    find_log_differences,
    printed,
)
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.sql.doctor_rows import IndexRow, RelationRow

COST = "Statements that need it fail: messages are not published or not handled."
INDEX_COST = "Statements read whole tables in its place, slower with every message."

_LOGGED = re.compile(r"^ALTER TABLE .+ SET LOGGED;$")
_STORAGE = re.compile(r"^ALTER TABLE .+ (SET|RESET) \((fillfactor|autovacuum_)")


async def differences(patient: Patient) -> Sequence[Difference]:
    """Everything in which the tables are not as needed, with vacuum's settings; asked for once, even if in vain."""
    if not patient.differences:
        try:
            async with asyncio.timeout(patient.connection.timeout):
                patient.differences.append(await _compared(patient))
        except Exception as error:
            patient.differences.append(error)
            raise
    found = patient.differences[0]
    if isinstance(found, Exception):
        raise found
    return found


async def _compared(patient: Patient) -> Sequence[Difference]:
    tables, found = patient.tables, list[Difference]()
    # A pooler may lend us no more than one.
    await patient.connection.close()
    try:
        async with patient.engine.connect() as connection:
            if tables.table is not None:
                found += await find_differences(connection, tables.table, tables.dlq_table, check_autovacuum=True)
            if tables.log_tables is not None:
                found += await find_log_differences(connection, tables.log_tables)
            if tables.inbox_table is not None:
                found += await find_inbox_differences(connection, tables.inbox_table)
    finally:
        await patient.engine.dispose()
    return found


def subject(difference: Difference) -> str:
    """The check that a difference belongs to."""
    if " index " in difference.where:
        return "indexes"
    if _LOGGED.search(difference.fix):
        return "unlogged"
    return "autovacuum" if _STORAGE.search(difference.fix) else "schema"


async def _schema(patient: Patient) -> Sequence[Finding]:
    return list(judge_schema(await differences(patient)))


def judge_schema(found: Sequence[Difference]) -> Iterator[Finding]:
    """What is missing or different, apart from what other checks see."""
    wrong = [item for item in found if subject(item) == "schema"]
    if wrong:
        yield _differing("schema", "critical", wrong, COST)


def _differing(check: str, severity: Severity, wrong: Sequence[Difference], cost: str) -> Finding:
    title = f"{counted(len(wrong), 'difference')} from what this version needs"
    detail = "\n".join(quote(f"{item.where}: {item.problem}") for item in wrong)
    repair = printed([*wrong]) if any(item.fix for item in wrong) else None
    facts: dict[str, JSON] = {
        "differences": [{"where": item.where, "problem": item.problem, "fix": item.fix} for item in wrong]
    }
    return Finding(check, severity, title, detail, cost, repair, facts)


async def _indexes(patient: Patient) -> Sequence[Finding]:
    rows = await patient.ask(IndexRow, "doctor", "indexes", tables=patient.names)
    least = None if patient.server.is_standby else patient.limits.unused_index_rows
    return list(judge_indexes(await differences(patient), rows, needed_columns(patient.tables), least))


def needed_columns(tables: Examined) -> Mapping[str, Collection[tuple[str, ...]]]:
    """By table, the columns of the indexes that this version needs, whatever they are called."""
    return {
        table.name: {tuple(column.name for column in index.columns) for index in table.indexes} for table in tables.all
    }


def judge_indexes(
    found: Sequence[Difference],
    rows: Sequence[IndexRow],
    needed: Mapping[str, Collection[tuple[str, ...]]],
    least: int | None,
) -> Iterator[Finding]:
    """Indexes that are missing, invalid or never read; the last after so many rows, or not at all."""
    wrong = [item for item in found if subject(item) == "indexes"]
    if wrong:
        yield _differing("indexes", "warning", wrong, INDEX_COST)
    text = " ".join(item.fix for item in wrong)
    for row in rows:
        own = tuple(row.columns) in needed.get(row.bare_table, ())
        facts: dict[str, JSON] = {"index": row.name, "table": row.table_name, "bytes": row.bytes, "scans": row.scans}
        if not row.is_usable and not row.is_building and row.name not in text and not row.is_partitioned:
            detail = (
                f"It was left on {row.table_name} by a CREATE or REINDEX INDEX CONCURRENTLY that failed. Who needs it "
                "creates it again afterwards; a unique one once no two rows are alike."
            )
            cost = "Every message that is written pays for it, and no statement can use it."
            yield Finding(
                "indexes", "warning", f"{row.name} is invalid", detail, cost, repairs.drop_index(row.name), facts
            )
        elif (
            least is not None
            and row.is_usable
            and not (own or row.is_unique or row.is_constraint or row.is_partitioned)
            and row.scans == 0
            and row.inserted_rows >= least
        ):
            title = f"{row.name} was never read"
            detail = (
                f"{counted(row.inserted_rows, 'row')} were written to {row.table_name} since statistics are kept, and "
                f"no statement has used this index, which the library does not need ({size(row.bytes)}). Look at "
                "standbys too: they count for themselves."
            )
            cost = "Every message that is written pays for it."
            yield Finding("indexes", "notice", title, detail, cost, repairs.drop_index(row.name), facts)


async def _unlogged(patient: Patient) -> Sequence[Finding]:
    return list(judge_unlogged(await patient.ask(RelationRow, "doctor", "relations", tables=patient.names)))


def judge_unlogged(rows: Sequence[RelationRow]) -> Iterator[Finding]:
    """Tables that a crash empties."""
    for row in rows:
        if row.is_unlogged:
            cost = "A crash of the server deletes all of its messages, and standbys have none."
            repair = repairs.set_logged(row.name)
            yield Finding("unlogged", "critical", f"{row.name} is UNLOGGED", "", cost, repair, {"table": row.name})


SCHEMA = Check(
    "schema",
    "tables, columns and constraints that are missing or different, policies and triggers that hide rows",
    "The tables are as this version needs them",
    _schema,
)
INDEXES = Check(
    "indexes",
    "indexes that are missing, different or invalid; of your own, those that were never read",
    "All indexes are there and valid",
    _indexes,
)
UNLOGGED = Check("unlogged", "tables that a crash empties", "All tables survive a crash", _unlogged)

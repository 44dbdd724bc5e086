"""Checks of the tables as the database has them: what differs, indexes, what a crash empties, sequences, partitions.

What is needed and how it is repaired is known to `schema.check`; this sorts what it says by subject. A sequence may lie
behind the numbers that are there, as after a restore or a copy that did not carry it; rows of a partitioned log may
have come where no part was made for them. Run by `Doctor`.
"""

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.finding import JSON, Check, Finding, Patient, Severity
from faststream_outbox._internal.schema.check import (
    find_differences,
    find_inbox_differences,
    find_log_differences,
    printed,
)
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox._internal.sql.doctor_rows import DrawnRow, IndexRow, RelationRow
from faststream_outbox._internal.text import counted, quote, size_of_1024

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


def needed_columns(tables: Tables) -> Mapping[str, Collection[tuple[str, ...]]]:
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
                f"no statement has used this index, which the library does not need ({size_of_1024(row.bytes)}). Look "
                "at standbys too: they count for themselves."
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


SEQUENCE_COST = "Publishing fails with a duplicate key until so many numbers were drawn in vain."
LOG_COST = "Publishing to topics fails, or messages get numbers that readers have passed."


async def _ids(patient: Patient) -> Sequence[Finding]:
    table = patient.queue.table
    rows = await patient.ask(DrawnRow, "doctor_queue", "ids", table=table)
    return list(judge_ids("ids", rows, table, patient.server.role))


async def _dead_ids(patient: Patient) -> Sequence[Finding]:
    table = patient.queue.places()["dead"]
    rows = await patient.ask(DrawnRow, "doctor_queue", "dead_ids", table=table)
    return list(judge_ids("dead_ids", rows, table, patient.server.role))


async def _positions(patient: Patient) -> Sequence[Finding]:
    return list(judge_positions(await patient.ask(DrawnRow, "doctor_log", "numbers"), patient.server.role))


def judge_ids(check: str, rows: Sequence[DrawnRow], table: str, role: str) -> Iterator[Finding]:
    """Whether ids would be drawn again that are there."""
    for row in rows:
        # A column without a sequence of its own is a difference of the schema.
        if row.sequence is None:
            continue
        if not row.may_read:
            yield _hidden(check, row.sequence, role)
        elif (row.highest or 0) > (row.drawn or 0):
            yield _behind(check, row, f"ids of {table}", SEQUENCE_COST, repairs.advance_sequence(row.sequence, table))


def judge_positions(rows: Sequence[DrawnRow], role: str) -> Iterator[Finding]:
    """Whether positions would be drawn again. What was numbered meanwhile has to be found too: setval will not do."""
    for row in rows:
        if row.sequence is None:
            continue
        if not row.may_read:
            yield _hidden("positions", row.sequence, role)
        elif (row.highest or 0) > (row.drawn or 0):
            yield _behind("positions", row, "positions of the log", LOG_COST, repairs.repair_log())


def _behind(check: str, row: DrawnRow, what: str, cost: str, repair: str) -> Finding:
    title = f"{row.sequence} lies behind the {what}"
    detail = f"The last number drawn is {row.drawn}, the highest there is {row.highest}."
    return Finding(check, "critical", title, detail, cost, repair, row._asdict())


def _hidden(check: str, sequence: str, role: str) -> Finding:
    title = f"{role} may not read the sequence {sequence}"
    cost = "A sequence that lies behind after a restore is noticed by publishers first."
    repair = repairs.grant_sequence(sequence, role)
    return Finding(check, "notice", title, "", cost, repair, {"sequence": sequence, "role": role})


IDS = Check(
    "ids",
    "a queue's sequence behind the ids that are there, as after a restore",
    "No id of a message is drawn twice",
    _ids,
    needs=("queue",),
)
DEAD_IDS = Check(
    "dead_ids",
    "the same for dead letters",
    "No id of a dead letter is drawn twice",
    _dead_ids,
    needs=("queue", "dead"),
)
POSITIONS = Check(
    "positions",
    "a log's sequence behind the positions that are there, as after a copy",
    "No position is drawn twice",
    _positions,
    needs=("log",),
)


USUAL_SIZE = 1_000_000
"""Positions of a part where there is none to go by."""
_RANGE = re.compile(r"FROM \('?(\d+)'?\) TO \('?(\d+)'?\)")


async def _partitions(patient: Patient) -> Sequence[Finding]:
    rows = await patient.ask(RelationRow, "doctor", "relations", tables=patient.names)
    return list(judge_partitions(rows))


def judge_partitions(rows: Sequence[RelationRow]) -> Iterator[Finding]:
    """A DEFAULT partition, and rows in the rest, which lies behind the last part."""
    sizes = [int(found[2]) - int(found[1]) for row in rows if (found := _RANGE.search(row.bound or ""))]
    for row in rows:
        if row.parent is None or row.bound is None:
            continue
        rows_there = max(row.live_rows, row.estimated_rows)
        has_rows = rows_there > 0 or row.bytes > 0
        facts: dict[str, JSON] = {"partition": row.name, "log": row.parent, "rows": rows_there}
        if row.bound == "DEFAULT":
            title = f"{row.name} is a DEFAULT partition of {row.parent}" + (" with rows" if has_rows else "")
            detail = (
                "The library makes none: behind its last part lies the rest, which has no end. Should a row have no "
                "place there, the commands change nothing: make its part first."
            )
            cost = "Beside it no part can be detached concurrently: retention cannot drop old ones."
            repair = repairs.empty_default(row.parent, row.name)
            yield Finding("partitions", "warning", title, detail, cost, repair, facts)
        elif row.bound.endswith("TO (MAXVALUE)") and has_rows:
            title = f"{row.name}, the rest behind the last part, has about {counted(rows_there, 'row')}"
            detail = (
                "Nobody made parts ahead of the numbers: Retention(messages=…) does it by itself, in a process whose "
                "role owns the log. The command cuts the rest where the numbers are now."
            )
            cost = "What is there is one part, however large, and is dropped only as a whole."
            repair = repairs.make_partitions(max(sizes, default=USUAL_SIZE))
            yield Finding("partitions", "notice", title, detail, cost, repair, facts)


PARTITIONS = Check(
    "partitions",
    "rows of a partitioned log in the rest behind its parts, or in a DEFAULT partition",
    "Every message is in a part of its own",
    _partitions,
    needs=("log",),
)

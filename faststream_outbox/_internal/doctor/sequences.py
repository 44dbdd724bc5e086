"""Sequences that lie behind the numbers that are there, as after a restore or a copy that did not carry them."""

from collections.abc import Iterator, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import Finding
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.sql.doctor_rows import DrawnRow

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

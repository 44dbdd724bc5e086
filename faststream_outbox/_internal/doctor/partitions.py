"""The parts of a partitioned log: rows where no part was made for them."""

import re
from collections.abc import Iterator, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.spoken import counted
from faststream_outbox._internal.sql.doctor_rows import RelationRow

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

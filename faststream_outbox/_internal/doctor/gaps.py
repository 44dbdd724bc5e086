"""Transactions that keep gaps of the log open: who drew a number and has neither committed nor rolled back."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding, Severity
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.snapshots import described
from faststream_outbox._internal.doctor.spoken import counted, duration, name
from faststream_outbox._internal.log.ordering.gaps import open_gaps
from faststream_outbox._internal.sql.overview_log_rows import OpenGap

COST = "Messages of that transaction wait, and vacuum does too; everybody else's are delivered."


async def _gaps(patient: Patient) -> Sequence[Finding]:
    return list(judge_gaps(await open_gaps(patient.connection, patient.log, age=patient.limits.gap_seconds)))


def judge_gaps(rows: Sequence[OpenGap]) -> Iterator[Finding]:
    """One finding for each transaction that may own gaps; on a standby, where none is seen, one in all."""

    def owner(row: OpenGap) -> tuple[int, str]:
        return (row.pid or 0, row.prepared or "")

    for _, owned in groupby(sorted(rows, key=owner), key=owner):
        yield _of_owner(list(owned))


def _of_owner(gaps: Sequence[OpenGap]) -> Finding:
    one, seconds = gaps[0], max(gap.age or 0.0 for gap in gaps)
    positions = sum(gap.hi - gap.lo + 1 for gap in gaps)
    first, last = min(gap.lo for gap in gaps), max(gap.hi for gap in gaps)
    facts: dict[str, JSON] = {
        "pid": one.pid,
        "gid": one.prepared,
        "positions": positions,
        "first_position": first,
        "last_position": last,
        "seconds": round(seconds, 1),
    }
    spread = f"Positions {first} to {last}."
    repair: str | None = None
    if one.pid is not None:
        opened = "" if one.running is None else f", open for {duration(one.running)}"
        who = described(one.user, one.application, one.state, one.query)
        detail = f"{spread} Session {one.pid} has drawn a number{opened}: {who}."
        repair = repairs.terminate([one.pid])
    elif one.prepared is not None:
        detail = (
            f"{spread} The prepared transaction {name(one.prepared)} has drawn a number. If it was decided "
            "to commit, run COMMIT PREPARED in the place of ROLLBACK PREPARED."
        )
        repair = repairs.rollback_prepared(one.prepared)
    else:
        detail = f"{spread} Whose they are is known on the primary: examine that one."
    severity: Severity = "warning" if repair is not None else "notice"
    title = f"{counted(positions, 'position')} of the log open for {duration(seconds)}"
    return Finding("gaps", severity, title, detail, COST, repair, facts)


GAPS = Check(
    "gaps",
    "transactions that drew a position of the log and are open since, with their statement",
    "No transaction keeps a gap of the log open",
    _gaps,
    needs=("log",),
)

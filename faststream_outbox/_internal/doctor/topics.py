"""Checks of groups and gaps: groups that nobody reads, forgotten pauses, and transactions that keep the log open.

A group that is gone holds retention back. A transaction that drew a number and has neither committed nor rolled back
keeps a gap open. Run by `Doctor`.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.finding import JSON, Check, Finding, Patient, Severity
from faststream_outbox._internal.doctor.vacuum import described
from faststream_outbox._internal.log.ordering.timeline import open_gaps
from faststream_outbox._internal.sql.doctor_rows import GroupRow
from faststream_outbox._internal.sql.overview_rows import OpenGap
from faststream_outbox._internal.text import counted, duration, name


def _of(row: GroupRow) -> str:
    return f"group {name(row.consumer_group)}" + (f" of {name(row.uri)}" if row.uri else "")


async def _groups(patient: Patient) -> Sequence[Finding]:
    limit = patient.limits.group_seconds
    return list(judge_groups(await patient.ask(GroupRow, "doctor_log", "idle_groups", seconds=limit)))


def judge_groups(rows: Sequence[GroupRow]) -> Iterator[Finding]:
    """Groups that were not heard of for days and have not read everything."""
    for row in rows:
        title = f"Nobody reads the {_of(row)} since {duration(row.seconds)}"
        detail = (
            f"About {counted(row.messages, 'message')} are unread. If it is to go on, start its subscriber: nothing is "
            "lost until then. If it is gone for good, delete it."
        )
        cost = "Retention keeps every message that it has not read, until the group expires."
        facts: dict[str, JSON] = {**row._asdict(), "seconds": round(row.seconds, 1)}
        repair = repairs.delete_group(row.consumer_group, row.uri)
        yield Finding("groups", "warning", title, detail, cost, repair, facts)


async def _paused_groups(patient: Patient) -> Sequence[Finding]:
    limit = patient.limits.pause_seconds
    rows = await patient.ask(GroupRow, "doctor_log", "forgotten_group_pauses", seconds=limit)
    return list(judge_paused_groups(rows, patient.log.places()["offsets"]))


def judge_paused_groups(rows: Sequence[GroupRow], offsets: str) -> Iterator[Finding]:
    """Groups that are paused for long."""
    for row in rows:
        title = f"The {_of(row)} is paused since {duration(row.seconds)}"
        detail = f"About {counted(row.messages, 'message')} are unread. A paused group does not expire."
        cost = "Its messages wait, and retention keeps them."
        facts: dict[str, JSON] = {**row._asdict(), "seconds": round(row.seconds, 1)}
        repair = repairs.resume_group(offsets, row.consumer_group, row.uri)
        yield Finding("paused_groups", "notice", title, detail, cost, repair, facts)


GROUPS = Check(
    "groups",
    "groups that were not heard of for days and hold retention back",
    "Every group is read",
    _groups,
    needs=("log",),
)
PAUSED_GROUPS = Check(
    "paused_groups",
    "groups that are paused for long",
    "No pause of a group was forgotten",
    _paused_groups,
    needs=("log",),
)


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

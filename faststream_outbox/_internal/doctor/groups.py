"""Groups of topics that nobody reads: those that are gone and hold retention back, and pauses that were forgotten."""

from collections.abc import Iterator, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.spoken import counted, duration, name
from faststream_outbox._internal.sql.doctor_rows import GroupRow


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

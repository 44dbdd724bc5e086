"""Keys whose messages wait for one that failed for good: behind a dead letter, or behind a parked message."""

from collections.abc import Iterator, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.spoken import counted, duration, name, quote
from faststream_outbox._internal.sql.doctor_rows import HeldKeyRow, ParkedHeadRow

MOST_KEYS = 1000
"""Keys with a dead letter, or with something deferred, that are looked at."""


async def _held_keys(patient: Patient) -> Sequence[Finding]:
    limit = patient.limits.ready_seconds
    rows = await patient.ask(HeldKeyRow, "doctor_queue", "held_keys", seconds=limit, most=MOST_KEYS)
    return list(judge_held_keys(rows))


def judge_held_keys(rows: Sequence[HeldKeyRow]) -> Iterator[Finding]:
    """Keys of queues that a dead letter holds: on_dead="block"."""
    for row in rows:
        title = f"{counted(row.waiting, 'message')} of key {name(row.key)} in {name(row.queue)} wait for a dead letter"
        letters = ", ".join(map(str, row.letters))
        detail = (
            f"The first is due for {duration(row.seconds)}, and nobody takes it. With on_dead='block' the dead letters "
            f"of its key have to go first: {letters}. See to what made them fail, then replay or purge them."
        )
        cost = "Nothing of this key is handled until then."
        facts: dict[str, JSON] = {**row._asdict(), "letters": [*row.letters], "seconds": round(row.seconds, 1)}
        yield Finding("held_keys", "warning", title, detail, cost, repairs.replay_letters(row.letters), facts)


async def _parked_keys(patient: Patient) -> Sequence[Finding]:
    limit = patient.limits.ready_seconds
    rows = await patient.ask(ParkedHeadRow, "doctor_log", "parked_heads", seconds=limit, most=MOST_KEYS)
    return list(judge_parked_keys(rows))


def judge_parked_keys(rows: Sequence[ParkedHeadRow]) -> Iterator[Finding]:
    """Keys of groups whose first message is parked."""
    for row in rows:
        where = f"{name(row.consumer_group)}"
        title = f"{counted(row.waiting, 'message')} of key {name(row.key)} in group {where} wait for a parked one"
        detail = (
            f"Position {row.position} failed for good with {quote(row.error_type) or 'no error'}; those behind it wait "
            f"for {duration(row.seconds)}. See to what made it fail, then let it run again, or skip it: "
            "broker.parked.skip(…)."
        )
        cost = "Nothing of this key is handled by the group until then."
        facts: dict[str, JSON] = {**row._asdict(), "seconds": round(row.seconds, 1)}
        repair = repairs.retry_parked(row.consumer_group, row.uri, [row.position])
        yield Finding("parked_keys", "warning", title, detail, cost, repair, facts)


HELD_KEYS = Check(
    "held_keys",
    "keys of queues whose messages wait behind a dead letter",
    "No key waits for a dead letter",
    _held_keys,
    needs=("queue", "dead"),
)
PARKED_KEYS = Check(
    "parked_keys",
    "keys of groups whose messages wait behind a parked one",
    "No key waits for a parked message",
    _parked_keys,
    needs=("log",),
)

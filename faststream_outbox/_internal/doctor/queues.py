"""Checks of queues and keys: messages that nobody takes, messages that die, forgotten pauses, and keys that wait.

A key waits behind a dead letter, or behind a parked message of a topic. What is asked are statements of the doctor's,
what is made of the answers are pure functions. Run by `Doctor`.
"""

from collections.abc import Iterator, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.finding import JSON, Check, Finding, Patient, Severity
from faststream_outbox._internal.doctor.server import Workers, workers
from faststream_outbox._internal.sql.doctor_rows import HeldKeyRow, ParkedHeadRow, PausedRow, ReadyRow, RecentDeadRow
from faststream_outbox._internal.text import counted, duration, name, quote

MOST_LANES = 1000
"""Lanes whose first messages are looked at."""
MOST_QUEUES = 200
"""Queues whose dead letters of the last hour are counted."""
MOST_COUNTED = 1000
"""Dead letters of a queue that are counted, unless the limit is higher."""


async def _ready(patient: Patient) -> Sequence[Finding]:
    processes = await workers(patient)
    limit = patient.limits.ready_seconds
    rows = await patient.ask(ReadyRow, "doctor_queue", "ready", seconds=limit, most=MOST_LANES)
    return list(judge_ready(rows, processes))


def judge_ready(rows: Sequence[ReadyRow], processes: Workers) -> Iterator[Finding]:
    """Queues whose oldest message that is due is old."""
    cost = "Its messages wait."
    for row in rows:
        facts: dict[str, JSON] = {
            "queue": row.queue,
            "seconds": round(row.seconds, 1),
            "processes": processes.processes,
        }
        waits = f"a message of {name(row.queue)} is due for {duration(row.seconds)}"
        if not processes.processes:
            detail = (
                "No connection to this database is named as those of workers are, 'outbox <worker> <role> "
                "<host>/<pid>'; behind a pooler they are while they do something. Start the process that has a "
                "subscriber for this queue."
            )
            title = f"No worker is to be seen, and {waits}"
            yield Finding("ready", "critical", title, detail, cost, None, facts)
        else:
            detail = (
                "Either no worker has this queue, or they do not keep up: more processes or max_workers. Or its key "
                "waits: the check held_keys."
            )
            yield Finding(
                "ready", "warning", f"{waits[0].upper()}{waits[1:]}, and nobody takes it", detail, cost, None, facts
            )


async def _paused(patient: Patient) -> Sequence[Finding]:
    limit = patient.limits.pause_seconds
    rows = await patient.ask(PausedRow, "doctor_queue", "forgotten_pauses", seconds=limit)
    return list(judge_paused(rows, patient.queue.table))


def judge_paused(rows: Sequence[PausedRow], table: str) -> Iterator[Finding]:
    """Queues that are paused for long."""
    for row in rows:
        title = f"The queue {name(row.queue)} is paused since {duration(row.seconds)}"
        detail = f"{counted(row.waiting, 'message')} wait there, or more."
        severity: Severity = "warning" if row.waiting else "notice"
        facts: dict[str, JSON] = {**row._asdict(), "seconds": round(row.seconds, 1)}
        repair = repairs.resume_queue(table, row.queue)
        yield Finding("paused_queues", severity, title, detail, "Its messages wait.", repair, facts)


async def _dead_letters(patient: Patient) -> Sequence[Finding]:
    rows = await patient.ask(
        RecentDeadRow,
        "doctor_queue",
        "recent_dead",
        most=MOST_QUEUES,
        counted=max(MOST_COUNTED, patient.limits.dead_letters),
        letters=patient.limits.dead_letters,
    )
    return list(judge_dead_letters(rows))


def judge_dead_letters(rows: Sequence[RecentDeadRow]) -> Iterator[Finding]:
    """Queues whose messages die by the hundred."""
    for row in rows:
        title = f"{counted(row.letters, 'message')} of {name(row.queue)} died in the last hour"
        error = f"{row.failure_reason}, {quote(row.error_type)}" if row.error_type else row.failure_reason
        detail = f"The last one: {error}. See to what makes them fail, then replay them."
        cost = "What they stand for does not happen until they are replayed."
        facts: dict[str, JSON] = {**row._asdict()}
        repair = repairs.replay_queue(row.queue)
        yield Finding("dead_letters", "warning", title, detail, cost, repair, facts)


READY = Check(
    "ready",
    "messages that are due for long and that nobody takes; no worker to be seen",
    "No message waits for a worker",
    _ready,
    needs=("queue",),
)
PAUSED_QUEUES = Check(
    "paused_queues", "queues that are paused for long", "No pause of a queue was forgotten", _paused, needs=("queue",)
)
DEAD_LETTERS = Check(
    "dead_letters",
    "queues whose messages die by the hundred",
    "Few messages die",
    _dead_letters,
    needs=("queue", "dead"),
)


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

"""Who holds the oldest snapshot: sessions, prepared transactions, replication slots, standbys.

Vacuum removes nothing that one of them may still see. Only what is older than a limit is named.
"""

from collections.abc import Iterator, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding, Severity
from faststream_outbox._internal.doctor.limits import Limits
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.spoken import counted, duration, name, quote, size
from faststream_outbox._internal.sql.doctor_rows import FeedbackRow, PreparedRow, SessionRow, SlotRow

ROWS_COST = "No row that died since then can be removed, from any table: the queue's grows, and full scans read them."
WAL_COST = "The server keeps all WAL since then, until the disk is full."
LATE = 12
"""How many times the limit is critical."""


def described(role: str | None, application: str | None, state: str | None, query: str | None) -> str:
    """A session in words."""
    parts = [f"role {quote(role)}", f"application {quote(application) or 'without a name'}"]
    parts += [f"state {quote(state)}"] if state else []
    parts += [f"last statement: {quote(query)}"] if query else []
    return ", ".join(parts)


async def _transactions(patient: Patient) -> Sequence[Finding]:
    limit = patient.limits.transaction_seconds
    return list(judge_sessions(await patient.ask(SessionRow, "doctor", "sessions", seconds=limit), limit))


def judge_sessions(rows: Sequence[SessionRow], limit: float) -> Iterator[Finding]:
    """Sessions whose transaction is open for long and keeps dead rows; the first keeps the most."""
    for row in rows:
        title = f"Session {row.pid} has a transaction open for {duration(row.seconds)}"
        detail = described(row.role, row.application, row.state, row.query)
        detail += f". {counted(row.transactions, 'transaction')} have begun since."
        facts: dict[str, JSON] = {**row._asdict(), "seconds": round(row.seconds, 1)}
        severity: Severity = "critical" if row.seconds > LATE * limit else "warning"
        yield Finding("transactions", severity, title, detail, ROWS_COST, repairs.terminate([row.pid]), facts)


async def _prepared(patient: Patient) -> Sequence[Finding]:
    limit = patient.limits.transaction_seconds
    return list(judge_prepared(await patient.ask(PreparedRow, "doctor", "prepared", seconds=limit), limit))


def judge_prepared(rows: Sequence[PreparedRow], limit: float) -> Iterator[Finding]:
    """Prepared transactions that nobody ends."""
    for row in rows:
        title = f"Transaction {name(row.gid)} is prepared since {duration(row.seconds)}"
        detail = (
            f"Role {quote(row.role)}. It outlives its session and restarts. Ask whoever coordinates it: if it was "
            "decided to commit, run COMMIT PREPARED in the place of ROLLBACK PREPARED."
        )
        facts: dict[str, JSON] = {**row._asdict(), "seconds": round(row.seconds, 1)}
        severity: Severity = "critical" if row.seconds > LATE * limit else "warning"
        yield Finding("prepared", severity, title, detail, ROWS_COST, repairs.rollback_prepared(row.gid), facts)


async def _slots(patient: Patient) -> Sequence[Finding]:
    return list(judge_slots(await patient.ask(SlotRow, "doctor", "slots"), patient.limits))


def judge_slots(rows: Sequence[SlotRow], limits: Limits) -> Iterator[Finding]:
    """Slots that nobody uses, and slots through which a standby keeps dead rows."""
    for row in rows:
        facts: dict[str, JSON] = {
            **row._asdict(),
            "inactive_seconds": row.inactive_seconds and round(row.inactive_seconds, 1),
        }
        kept = max(row.transactions or 0, row.catalog_transactions or 0)
        holds_rows = (row.transactions or 0) >= limits.kept_transactions
        if row.is_active:
            if holds_rows:
                title = (
                    f"A standby keeps dead rows of {counted(kept, 'transaction')} through the slot {quote(row.name)}"
                )
                detail = "It has hot_standby_feedback, and a query that runs there for long."
                repair = repairs.end_queries_of_standby()
                yield Finding("slots", "warning", title, detail, ROWS_COST, repair, facts)
            continue
        unused = row.inactive_seconds
        is_old = kept >= limits.kept_transactions if unused is None else unused >= limits.slot_seconds
        if row.is_temporary or not (is_old or row.wal_bytes >= limits.kept_wal_bytes):
            continue
        since = "" if unused is None else f" since {duration(unused)}"
        title = f"Nobody uses the replication slot {quote(row.name)}{since}"
        detail = (
            f"It is {row.kind} and keeps {size(row.wal_bytes)} of WAL. If its standby or subscriber is to come back, "
            "start that one: after the command below it has to begin anew."
        )
        cost = f"{ROWS_COST} {WAL_COST}" if row.transactions is not None else WAL_COST
        severity: Severity = "critical" if row.wal_bytes >= limits.kept_wal_bytes or holds_rows else "warning"
        yield Finding("slots", severity, title, detail, cost, repairs.drop_slot(row.name), facts)


async def _standbys(patient: Patient) -> Sequence[Finding]:
    most = patient.limits.kept_transactions
    return list(judge_standbys(await patient.ask(FeedbackRow, "doctor", "feedback", transactions=most)))


def judge_standbys(rows: Sequence[FeedbackRow]) -> Iterator[Finding]:
    """Standbys without a slot that keep dead rows here for their own queries."""
    for row in rows:
        who = quote(row.application) or quote(row.address) or f"of session {row.pid}"
        title = f"The standby {who} keeps dead rows of {counted(row.transactions, 'transaction')}"
        detail = (
            f"Its connection is session {row.pid}, from {quote(row.address) or 'a socket'}. It has "
            "hot_standby_feedback, and a query that runs there for long."
        )
        repair = repairs.end_queries_of_standby()
        yield Finding("standbys", "warning", title, detail, ROWS_COST, repair, row._asdict())


TRANSACTIONS = Check(
    "transactions",
    "sessions whose transaction is open for long and keeps dead rows, with their statement",
    "No session holds an old snapshot",
    _transactions,
)
PREPARED = Check("prepared", "prepared transactions that nobody ends", "No prepared transaction is left", _prepared)
SLOTS = Check(
    "slots",
    "replication slots that nobody uses, or that keep dead rows for a standby",
    "No replication slot keeps what nobody needs",
    _slots,
)
STANDBYS = Check(
    "standbys",
    "standbys that keep dead rows by `hot_standby_feedback`",
    "No standby keeps dead rows",
    _standbys,
)

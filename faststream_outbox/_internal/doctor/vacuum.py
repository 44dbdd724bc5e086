"""Checks of vacuum: whether it comes, whether it keeps up, whether transaction numbers run out, and who holds it back.

It removes nothing that a session, a prepared transaction, a replication slot or a standby may still see. Only what is
older than a limit is named. Run by `Doctor`.
"""

from collections.abc import Iterator, Mapping, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.finding import JSON, Check, Finding, Limits, Patient, Severity
from faststream_outbox._internal.doctor.schema import differences, subject
from faststream_outbox._internal.schema.check import printed
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.sql.doctor_rows import (
    FeedbackRow,
    PreparedRow,
    RelationRow,
    ServerRow,
    SessionRow,
    SettingRow,
    SlotRow,
)
from faststream_outbox._internal.text import counted, duration, name, quote, size_of_1024

SWITCHES = ("autovacuum", "track_counts")
THRESHOLDS = ("autovacuum_vacuum_scale_factor", "autovacuum_vacuum_threshold")
COST = "Dead rows stay: the table grows, and full scans read them."
NEAR_THE_END = 1_600_000_000
"""The server refuses to write at about 2.1 thousand millions."""
_OFF = ("false", "off", "0", "no")


def options_of(row: RelationRow) -> Mapping[str, str]:
    """The storage options of a table."""
    return dict(option.split("=", 1) for option in row.options)


async def _autovacuum(patient: Patient) -> Sequence[Finding]:
    settings = await patient.ask(SettingRow, "doctor", "settings", names=list(SWITCHES))
    rows = await patient.ask(RelationRow, "doctor", "relations", tables=patient.names)
    return list(judge_autovacuum(settings, rows, await differences(patient), patient.server))


def judge_autovacuum(
    settings: Sequence[SettingRow], rows: Sequence[RelationRow], found: Sequence[Difference], server: ServerRow
) -> Iterator[Finding]:
    """Whether vacuum comes by itself, to every table, and as often as a queue needs it."""
    for setting in settings:
        if setting.setting == "off" and not server.is_standby:
            repair = repairs.change_setting(
                setting.name, "on", setting.source, role=server.role, database=server.database
            )
            detail = f"It is set by: {setting.source}." + ("" if repair else " Change it there.")
            facts: dict[str, JSON] = {"setting": setting.name, "source": setting.source}
            title = f"{setting.name} is off: no table is vacuumed by itself"
            yield Finding("autovacuum", "critical", title, detail, COST, repair, facts)
    for row in rows:
        if options_of(row).get("autovacuum_enabled", "true").lower() in _OFF:
            repair = repairs.reset_option(row.name, "autovacuum_enabled")
            title = f"autovacuum is switched off for {row.name}"
            yield Finding("autovacuum", "warning", title, "", COST, repair, {"table": row.name})
    left = [item for item in found if subject(item) == "autovacuum" and "autovacuum_enabled" not in item.fix]
    for item in left:
        is_room = "fillfactor" in item.fix
        title = f"{item.where} leaves too little room on its pages" if is_room else f"{item.where} is vacuumed too late"
        cost = "Each claim writes to all indexes of its row." if is_room else COST
        facts = {"table": item.where, "problem": item.problem}
        yield Finding("autovacuum", "notice", title, item.problem, cost, printed([item]), facts)


async def _dead_rows(patient: Patient) -> Sequence[Finding]:
    settings = await patient.ask(SettingRow, "doctor", "settings", names=list(THRESHOLDS))
    rows = await patient.ask(RelationRow, "doctor", "relations", tables=patient.names)
    return list(judge_dead_rows(settings, rows, patient.limits))


def judge_dead_rows(settings: Sequence[SettingRow], rows: Sequence[RelationRow], limits: Limits) -> Iterator[Finding]:
    """Tables with more dead rows than vacuum should ever leave."""
    of_server = {setting.name: setting.setting for setting in settings}
    for row in rows:
        options = {**of_server, **options_of(row)}
        factor, threshold = (float(options.get(name, 0)) for name in THRESHOLDS)
        comes_at = threshold + factor * row.estimated_rows
        if row.dead_rows < limits.dead_rows or row.dead_rows < 2 * comes_at:
            continue
        ago = row.vacuumed_seconds_ago
        last = "It was never vacuumed" if ago is None else f"It was vacuumed {duration(ago)} ago"
        detail = (
            f"{last}; autovacuum comes after {counted(comes_at, 'dead row')}. If they stay after the command below, "
            "an old snapshot keeps them: the checks transactions, prepared, slots and standbys name it."
        )
        facts: dict[str, JSON] = {
            "table": row.name,
            "dead_rows": row.dead_rows,
            "live_rows": row.live_rows,
            "vacuumed_seconds_ago": ago,
        }
        title = f"{row.name} has {counted(row.dead_rows, 'dead row')}"
        yield Finding("dead_rows", "warning", title, detail, COST, repairs.vacuum(row.name), facts)


async def _wraparound(patient: Patient) -> Sequence[Finding]:
    rows = await patient.ask(RelationRow, "doctor", "relations", tables=patient.names)
    return list(judge_wraparound(rows, patient.limits.frozen_age))


def judge_wraparound(rows: Sequence[RelationRow], most: int) -> Iterator[Finding]:
    """Tables whose oldest transaction number is so old that the server will refuse to write."""
    for row in rows:
        if row.frozen_age is None or row.frozen_age < most:
            continue
        detail = (
            "Vacuum has not come to its end there for very long, or an old snapshot keeps it from that: the checks "
            "transactions, prepared, slots and standbys name it."
        )
        cost = "The server refuses all writes at about 2.1 thousand million transactions."
        title = f"{row.name} has transaction numbers that are {counted(row.frozen_age, 'transaction')} old"
        severity: Severity = "critical" if row.frozen_age >= NEAR_THE_END else "warning"
        facts: dict[str, JSON] = {"table": row.name, "age": row.frozen_age}
        yield Finding("wraparound", severity, title, detail, cost, repairs.freeze(row.name), facts)


AUTOVACUUM = Check(
    "autovacuum",
    "autovacuum off, for the server or for a table; settings and fillfactor that do not suit a queue",
    "Vacuum comes by itself",
    _autovacuum,
)
DEAD_ROWS = Check("dead_rows", "tables with more dead rows than vacuum should leave", "Vacuum keeps up", _dead_rows)
WRAPAROUND = Check(
    "wraparound", "tables whose transaction numbers grow too old", "Transaction numbers do not run out", _wraparound
)


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
            f"It is {row.kind} and keeps {size_of_1024(row.wal_bytes)} of WAL. If its standby or subscriber is to come "
            "back, start that one: after the command below it has to begin anew."
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

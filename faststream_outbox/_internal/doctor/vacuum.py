"""Vacuum: whether it comes, whether it keeps up, and whether transaction numbers run out."""

from collections.abc import Iterator, Mapping, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding, Severity
from faststream_outbox._internal.doctor.limits import Limits
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.schema import differences, subject
from faststream_outbox._internal.doctor.spoken import counted, duration
from faststream_outbox._internal.schema.check import printed
from faststream_outbox._internal.schema.compare import Difference
from faststream_outbox._internal.sql.doctor_rows import RelationRow, ServerRow, SettingRow

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

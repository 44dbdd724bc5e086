"""The server itself: what it is, what this role may see, whether what it promises holds, and its clock."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.spoken import duration
from faststream_outbox._internal.sql.doctor_rows import ServerRow, SettingRow
from faststream_outbox._internal.sql.rows import column

OLDEST = 150_000
"""PostgreSQL 15, as `server_version_num`."""
DURABLE = {
    "fsync": "a crash of the machine may leave the whole database unreadable",
    "full_page_writes": "a crash of the machine may leave pages half written",
    "synchronous_commit": "a crash of the server loses what was committed in its last moments",
}


async def _server(patient: Patient) -> Sequence[Finding]:
    return list(judge_server(patient.server))


def judge_server(server: ServerRow) -> Iterator[Finding]:
    """Whether this server can be examined in full."""
    facts: dict[str, JSON] = {"version": server.version, "is_standby": server.is_standby, "database": server.database}
    if server.version < OLDEST:
        title = f"PostgreSQL {server.version // 10_000} is older than 15"
        detail = "Statements of this version need PostgreSQL 15 or newer: upgrade the server."
        yield Finding("server", "critical", title, detail, "Workers and some checks fail.", None, facts)
    if server.is_standby:
        detail = (
            "Sessions, statistics and settings are those of the standby; slots, gaps' transactions and dead rows are "
            "the primary's. Examine that one too."
        )
        yield Finding(
            "server", "notice", "This is a standby", detail, "Causes on the primary are not seen.", None, facts
        )


async def _rights(patient: Patient) -> Sequence[Finding]:
    hidden = 0
    if not patient.server.sees_all:
        (hidden,) = column(await patient.fetch("doctor", "hidden_sessions", {}))
    return list(judge_rights(patient.server, hidden))


def judge_rights(server: ServerRow, hidden: int) -> Iterator[Finding]:
    """Whether sessions of other roles are shown."""
    if server.sees_all:
        return
    detail = (
        f"The checks transactions, idle, gaps and notifications see sessions of {server.role} only. "
        f"Of the others, {hidden:,} hold a snapshot now; since when is not shown."
    )
    title = f"Sessions of other roles are hidden from {server.role}"
    cost = "Whoever keeps dead rows or gaps may go unnamed."
    repair = repairs.grant_role("pg_read_all_stats", server.role)
    yield Finding("rights", "notice", title, detail, cost, repair, {"role": server.role, "hidden_snapshots": hidden})


async def _durability(patient: Patient) -> Sequence[Finding]:
    rows = await patient.ask(SettingRow, "doctor", "settings", names=list(DURABLE))
    return list(judge_durability(rows, patient.server))


def judge_durability(rows: Sequence[SettingRow], server: ServerRow) -> Iterator[Finding]:
    """Settings under which a commit that was answered may be lost."""
    for row in rows:
        if row.setting != "off":
            continue
        repair = repairs.change_setting(row.name, "on", row.source, role=server.role, database=server.database)
        detail = f"It is set by: {row.source}." + ("" if repair else " Change it there.")
        cost = f"The promise of the outbox does not hold: {DURABLE[row.name]}."
        facts: dict[str, JSON] = {"setting": row.name, "source": row.source}
        yield Finding("durability", "critical", f"{row.name} is off", detail, cost, repair, facts)


async def _clock(patient: Patient) -> Sequence[Finding]:
    before = datetime.now(UTC)
    (there,) = column(await patient.fetch("doctor", "clock", {}))
    return list(judge_clock(before, there, datetime.now(UTC), patient.limits.clock_seconds))


def judge_clock(before: datetime, there: datetime, after: datetime, most: float) -> Iterator[Finding]:
    """How far the server's clock is from ours, which was read before and after it; the way there is no difference."""
    ahead = max((there - after).total_seconds(), (before - there).total_seconds())
    if ahead <= most:
        return
    where = "ahead of" if there > after else "behind"
    title = f"The server's clock is {duration(ahead)} {where} that of this machine"
    detail = f"Here it was {before.isoformat()}, on the server {there.isoformat()}."
    cost = "Timers that are given a time of this machine fire early or late, and ages in logs are wrong."
    facts: dict[str, JSON] = {"seconds": round((there - before).total_seconds(), 3)}
    yield Finding("clock", "warning", title, detail, cost, repairs.set_clock(), facts)


SERVER = Check(
    "server", "a standby, or a server that is too old", "The server is a primary of a supported version", _server
)
RIGHTS = Check("rights", "a role from which sessions of others are hidden", "This role sees all sessions", _rights)
DURABILITY = Check(
    "durability",
    "`fsync`, `full_page_writes` or `synchronous_commit` off",
    "What is committed is on disk",
    _durability,
)
CLOCK = Check("clock", "clocks of this machine and the server apart", "The clocks agree", _clock)

"""Checks of the server: what it is, what this role may see, whether what it promises holds, its clock, its connections.

Whether there are enough connections, which of them only hold locks, and what stands between us and the server. Whether
anybody listens, and whether the queue of notifications fills up. Who of ours is connected is known by the names that
connections give themselves; checks of queues ask for it too. Run by `Doctor`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from faststream_outbox._internal.connections.identity import ConnectionName, parse_name
from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.finding import JSON, Check, Finding, Limits, Patient, Severity
from faststream_outbox._internal.doctor.vacuum import described
from faststream_outbox._internal.sql.doctor_rows import BudgetRow, NotificationsRow, ServerRow, SessionRow, SettingRow
from faststream_outbox._internal.sql.overview_rows import ConnectionRow
from faststream_outbox._internal.sql.statements import column, statements
from faststream_outbox._internal.text import counted, duration

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


WORKING = frozenset({"claim", "scan", "settle", "listen", "read", "tick"})
"""What connections of workers do; whoever only asks or publishes is no worker."""


class Workers(NamedTuple):
    """Processes with workers that are connected to this database."""

    connections: int
    processes: int
    listeners: int


def counted_workers(names: Iterable[ConnectionName]) -> Workers:
    """The workers among connections of ours; pure."""
    working = [name for name in names if name.role in WORKING]
    processes = {name.worker_id for name in working}
    return Workers(len(working), len(processes), sum(name.role == "listen" for name in working))


async def connected(patient: Patient) -> list[ConnectionName]:
    """Every connection of ours to this database."""
    rows = await patient.ask(ConnectionRow, "overview", "connections")
    return [name for row in rows if (name := parse_name(row.application_name)) is not None]


async def workers(patient: Patient) -> Workers:
    """The processes with workers."""
    return counted_workers(await connected(patient))


FULL = 0.9
TURNS = 3
"""How often two connections ask for their server process in turn."""

Between = Literal["nothing", "sessions", "transactions"]


async def _connections(patient: Patient) -> Sequence[Finding]:
    (row,) = await patient.ask(BudgetRow, "doctor", "budget")
    ours = len(await connected(patient))
    return list(judge_connections(row, ours, patient.server, patient.limits))


def judge_connections(row: BudgetRow, ours: int, server: ServerRow, limits: Limits) -> Iterator[Finding]:
    """Whether connections run out, of the server or of the database."""
    facts: dict[str, JSON] = {**row._asdict(), "ours": ours}
    detail = (
        f"{row.used:,} are in use, of these {row.idle:,} idle and {ours:,} of this library; "
        f"{row.reserved:,} of {row.most:,} are reserved. A pooler between applications and the server needs fewer."
    )
    cost = "Whoever connects next may be refused: publishers, and workers that reconnect."
    free = max(row.most - row.reserved, 1)
    if row.used >= limits.connections * free:
        title = f"{row.used:,} of {free:,} connections of the server are taken"
        severity: Severity = "critical" if row.used >= FULL * free else "warning"
        yield Finding("connections", severity, title, detail, cost, repairs.raise_connections(2 * row.most), facts)
    most = row.most_of_database
    if most >= 0 and row.of_database >= limits.connections * most:
        title = f"{row.of_database:,} of {most:,} connections of the database are taken"
        severity = "critical" if row.of_database >= FULL * most else "warning"
        repair = repairs.raise_connections_of_database(server.database, 2 * max(most, 5))
        yield Finding("connections", severity, title, detail, cost, repair, facts)


async def _idle(patient: Patient) -> Sequence[Finding]:
    limit = patient.limits.transaction_seconds
    return list(judge_idle(await patient.ask(SessionRow, "doctor", "idle_in_transaction", seconds=limit)))


def judge_idle(rows: Sequence[SessionRow]) -> Iterator[Finding]:
    """Sessions that do nothing in a transaction; those that also keep dead rows are of the check transactions."""
    for row in rows:
        title = f"Session {row.pid} does nothing in a transaction for {duration(row.seconds)}"
        detail = described(row.role, row.application, row.state, row.query)
        cost = "It holds its locks and a connection: a migration waits for it, and everybody else for the migration."
        facts: dict[str, JSON] = {**row._asdict(), "seconds": round(row.seconds, 1)}
        yield Finding("idle", "notice", title, detail, cost, repairs.terminate([row.pid]), facts)


async def _pooler(patient: Patient) -> Sequence[Finding]:
    processes = await workers(patient)
    return list(judge_pooler(await between(patient), processes))


async def between(patient: Patient) -> Between:
    """What stands between us and the server: a pooler that lends for a transaction gives two clients the same process.

    It may not do so in these few turns where it has much to do. Then it is taken for one that lends for a session.
    """
    await patient.connection.open()
    if not patient.connection.pooled:
        return "nothing"
    asked = statements("doctor", patient.names_of("doctor"))["backend"]
    other = patient.connection.sibling()
    ours, theirs = set[int](), set[int]()
    try:
        for _ in range(TURNS):
            ours.update(column(await patient.connection.fetch(asked, {})))
            theirs.update(column(await other.fetch(asked, {})))
    except TimeoutError:
        # It lends one connection at a time, and we have it: as long as our session lasts.
        return "sessions"
    finally:
        await other.close()
    return "transactions" if ours & theirs or len(ours) > 1 or len(theirs) > 1 else "sessions"


def judge_pooler(found: Between, processes: Workers) -> Iterator[Finding]:
    """Whether LISTEN works at the address that the engine has."""
    if found != "transactions":
        return
    title = "A pooler in transaction mode stands between this engine and the server"
    detail = (
        "It accepts LISTEN and delivers nothing. Workers with this engine need listen_dsn, an address past the pooler, "
        "or listen=False. A listener says so itself: the event ListenerDeaf."
    )
    cost = "Messages of other processes are found by watching, after 10 to 100 milliseconds instead of a few."
    severity: Severity = "notice" if processes.listeners else "warning"
    facts: dict[str, JSON] = {"listeners": processes.listeners, "processes": processes.processes}
    yield Finding("pooler", severity, title, detail, cost, repairs.listen_past_pooler(), facts)


CONNECTIONS = Check(
    "connections",
    "connections that run out, of the server or of the database",
    "There are connections left",
    _connections,
)
IDLE = Check(
    "idle", "sessions that do nothing in a transaction and hold locks", "No session is idle in a transaction", _idle
)
POOLER = Check(
    "pooler",
    "a pooler in transaction mode, through which LISTEN hears nothing",
    "No pooler keeps LISTEN from hearing",
    _pooler,
)


HALF = 0.5


async def _listener(patient: Patient) -> Sequence[Finding]:
    return list(judge_listener(await workers(patient)))


def judge_listener(row: Workers) -> Iterator[Finding]:
    """Whether processes of ours are connected and none of them listens; where there are none, nobody has to."""
    if not row.processes or row.listeners:
        return
    detail = (
        "The server does not say who listens to what, so this goes by the names that connections give themselves: "
        "'outbox <worker> listen <host>/<pid>'. Either workers were given listen=False, or their listener does not "
        "come through: its events are ListenerLost and ListenerDeaf."
    )
    title = f"{counted(row.processes, 'process', 'processes')} of ours, and none of them listens"
    cost = "Messages of other processes are found by watching, after 10 to 100 milliseconds instead of a few."
    yield Finding("listener", "notice", title, detail, cost, None, row._asdict())


async def _notifications(patient: Patient) -> Sequence[Finding]:
    if patient.server.is_standby:
        return []
    rows = await patient.ask(NotificationsRow, "doctor", "notifications")
    return list(judge_notifications(rows, patient.limits))


def judge_notifications(rows: Sequence[NotificationsRow], limits: Limits) -> Iterator[Finding]:
    """Whether somebody who listens keeps the queue of notifications from being emptied."""
    share = rows[0].share
    if share < limits.notifications:
        return
    suspects = [row for row in rows if row.pid is not None]
    lines = [
        f"session {row.pid}, in a transaction for {duration(row.seconds or 0)}: "
        f"{described(row.role, row.application, row.state, row.query)}"
        for row in suspects
    ]
    detail = (
        "A session that has called LISTEN is in a transaction, and takes nothing until that ends. The server's log "
        "names it once the queue is half full. Open for the longest time:\n" + "\n".join(lines)
    )
    cost = "When it is full, every COMMIT of a transaction with a NOTIFY fails, in all databases of the server."
    repair = repairs.terminate([row.pid for row in suspects[:1] if row.pid is not None]) or None
    title = f"The queue of notifications is {share:.0%} full"
    severity: Severity = "critical" if share >= HALF else "warning"
    facts: dict[str, JSON] = {"share": round(share, 4), "pids": [row.pid for row in suspects]}
    yield Finding("notifications", severity, title, detail, cost, repair, facts)


LISTENER = Check("listener", "processes of ours of which none listens", "Whoever works here listens", _listener)
NOTIFICATIONS = Check(
    "notifications",
    "a queue of notifications that fills up, and the transactions that are open the longest",
    "The queue of notifications is nearly empty",
    _notifications,
)

"""Connections: whether there are enough, which of them only hold locks, and what stands between us and the server."""

from collections.abc import Iterator, Sequence
from typing import Literal

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding, Severity
from faststream_outbox._internal.doctor.limits import Limits
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.processes import Workers, connected, workers
from faststream_outbox._internal.doctor.snapshots import described
from faststream_outbox._internal.doctor.spoken import duration
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.doctor_rows import BudgetRow, ServerRow, SessionRow
from faststream_outbox._internal.sql.rows import column

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

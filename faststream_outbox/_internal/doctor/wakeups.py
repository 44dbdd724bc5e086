"""Wake-ups: whether anybody listens, and whether the server's queue of notifications fills up."""

from collections.abc import Iterator, Sequence

from faststream_outbox._internal.doctor import repairs
from faststream_outbox._internal.doctor.check import Check
from faststream_outbox._internal.doctor.finding import JSON, Finding, Severity
from faststream_outbox._internal.doctor.limits import Limits
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.doctor.processes import Workers, workers
from faststream_outbox._internal.doctor.snapshots import described
from faststream_outbox._internal.doctor.spoken import counted, duration
from faststream_outbox._internal.sql.doctor_rows import NotificationsRow

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

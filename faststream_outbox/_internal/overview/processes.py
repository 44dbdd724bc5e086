"""Who works on the tables, and how fast the tables move: what the server knows of both.

Processes are known by the names that our connections give themselves. Anybody who may connect can give such a name:
what is shown here is what was said, and nothing is decided by it. Behind a pooler in transaction mode a process is
known while one of its statements runs, and by its LISTEN connection past the pooler (`listen_dsn`). A read replica
knows only who is connected to itself.

Rates are what the server has counted between two questions, divided by the time between them. It counts rows: whatever
was inserted, also by a transaction that was rolled back, by a pause or by a replay; and whatever was deleted: done,
dead, cancelled, resumed. A server process reports what it did after its transaction, at most once a second, so that a
second or two are smoothed over. A read replica counts nothing. Asked by `Overview`, on its connection.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.connections.identity import ConnectionName, parse_name
from faststream_outbox._internal.overview.queues import AT_ONCE, as_values, lanes_of, queue_names, share
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.schema.names import AnyNames, Names
from faststream_outbox._internal.sql.log_admin_rows import OwnerRow
from faststream_outbox._internal.sql.overview_rows import ConnectionRow, HolderRow, WrittenRow
from faststream_outbox._internal.sql.statements import named, statements


@dataclass(frozen=True, slots=True)
class Process:
    """One client in one process: everything that shares a worker id."""

    worker_id: str
    """Eight hexadecimal digits; lease tokens and members begin with it."""
    host: str
    """Its beginning and its end, around a `~`, where it is long."""
    pid: int
    roles: tuple[str, ...]
    """What its connections do: "claim", "settle", "listen", "read" …"""
    backend_pids: tuple[int, ...]
    connected_since: datetime | None
    """None where the asking role may not know: neither a member of `pg_read_all_stats` nor of the other's role."""
    leases: int
    """Messages of queues that it holds now; at least so many, where many messages lie before those it holds."""
    slots: int
    """Slots of groups that it reads now."""
    application: str | None = None
    """What the application calls its own connections, as far as there was room for it."""


def grouped(connections: Iterable[ConnectionRow], leases: Mapping[str, int], slots: Mapping[str, int]) -> list[Process]:
    """Connections as processes, by host and pid; pure."""
    ours: dict[tuple[str, int, str], list[tuple[ConnectionName, ConnectionRow]]] = {}
    for row in connections:
        name = parse_name(row.application_name)
        if name is not None:
            ours.setdefault((name.host, name.pid, name.worker_id), []).append((name, row))
    return [
        Process(
            worker_id=worker_id,
            host=host,
            pid=pid,
            roles=tuple(sorted({name.role for name, _ in of_one})),
            backend_pids=tuple(sorted(row.pid for _, row in of_one)),
            connected_since=min((row.backend_start for _, row in of_one if row.backend_start), default=None),
            leases=leases.get(worker_id, 0),
            slots=slots.get(worker_id, 0),
            application=next((name.application for name, _ in of_one if name.application), None),
        )
        for (host, pid, worker_id), of_one in sorted(ours.items())
    ]


async def fetch_processes(
    connection: DedicatedConnection, names: Names | None, log_names: LogNames | None, ttl: float
) -> list[Process]:
    """Everybody of ours; see `Overview.processes`."""
    leases = {} if names is None else await _leases(connection, names, ttl)
    slots: dict[str, int] = {}
    if log_names is not None:
        rows = await connection.fetch(statements("group_admin", log_names)["slots_by_owner"], {})
        slots = dict(named(OwnerRow, rows))
    return grouped(await fetch_connections(connection, names or log_names), leases, slots)


async def fetch_process(
    connection: DedicatedConnection, names: Names, log_names: LogNames | None, ttl: float, worker_id: str | None
) -> Process | None:
    """The process of a worker id, if the server knows a connection of it."""
    known = [] if worker_id is None else grouped(await fetch_connections(connection, names), {}, {})
    if not any(process.worker_id == worker_id for process in known):
        # What it holds is counted only where there is somebody to say it of.
        return None
    everybody = await fetch_processes(connection, names, log_names, ttl)
    return next((process for process in everybody if process.worker_id == worker_id), None)


async def fetch_connections(connection: DedicatedConnection, names: AnyNames | None) -> list[ConnectionRow]:
    """The connections that may be ours, whatever tables there are."""
    sql = statements("overview", names or Names("", None, ""))["connections"]
    return named(ConnectionRow, await connection.fetch(sql, {}))


async def _leases(connection: DedicatedConnection, names: Names, ttl: float) -> dict[str, int]:
    lanes = await lanes_of(connection, names, await queue_names(connection, names))
    sql = statements("overview", names)["holders"]
    found: dict[str, int] = {}
    for first in range(0, len(lanes), AT_ONCE):
        values = as_values(lanes[first : first + AT_ONCE]) | {"ttl": ttl, "most": share(len(lanes))}
        for row in named(HolderRow, await connection.fetch(sql, values)):
            found[row.worker_id] = found.get(row.worker_id, 0) + row.leases
    return found


@dataclass(frozen=True, slots=True)
class Rates:
    """Rows of the queues' table per second since the question before."""

    published: float | None
    """Inserted, per second. None at the first question, after the statistics began anew, and on a read replica."""
    finished: float | None
    """Deleted, per second: done, dead and cancelled."""
    died: float | None
    """Dead letters written, per second; None also without a table for them."""
    seconds: float
    """Between the two questions; 0 where there is nothing to compare with."""


NOTHING_YET = Rates(None, None, None, 0.0)


def rates_between(before: WrittenRow | None, now: WrittenRow) -> Rates:
    """The rates between two answers; pure."""
    if before is None or now.is_standby:
        return NOTHING_YET
    seconds = now.at - before.at
    if seconds <= 0 or now.inserted < before.inserted or now.deleted < before.deleted:
        # The statistics were reset, or this is another server.
        return NOTHING_YET
    died = None
    if before.died is not None and now.died is not None and now.died >= before.died:
        died = (now.died - before.died) / seconds
    published, finished = now.inserted - before.inserted, now.deleted - before.deleted
    return Rates(published / seconds, finished / seconds, died, seconds)


async def fetch_written(connection: DedicatedConnection, names: Names) -> WrittenRow:
    """What the server has counted so far."""
    sql = statements("overview", names)["written"]
    (row,) = named(WrittenRow, await connection.fetch(sql, {"table": names.table, "dead": names.dead}))
    return row

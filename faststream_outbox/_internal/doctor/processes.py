"""Who of ours is connected, by the names that connections give themselves. Used by checks of queues and wake-ups."""

from collections.abc import Iterable
from typing import NamedTuple

from faststream_outbox._internal.connections.identity import ConnectionName, parse_name
from faststream_outbox._internal.doctor.patient import Patient
from faststream_outbox._internal.sql.overview_rows import ConnectionRow

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

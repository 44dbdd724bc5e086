"""Processes that are connected."""

from collections.abc import Sequence

from faststream_outbox._internal.cli.blocks import Grid
from faststream_outbox._internal.overview.processes import Process


def process_grid(processes: Sequence[Process]) -> Grid:
    """A row for each process."""
    columns = ("worker", "application", "host", "pid", "roles", "leases", "slots", "since", "backends")
    rows = [
        (
            each.worker_id,
            each.application,
            each.host,
            str(each.pid),
            ", ".join(each.roles),
            each.leases,
            each.slots,
            each.connected_since,
            " ".join(map(str, each.backend_pids)),
        )
        for each in processes
    ]
    return Grid(columns, rows, empty="Nobody of ours is connected: no process claims, settles or reads.")


def process_named(process: Process | None, worker_id: str | None) -> str | None:
    """Who it is, in a few words."""
    if process is not None:
        return f"{process.worker_id} (pid {process.pid} on {process.host})"
    return None if worker_id is None else f"{worker_id} (not connected any more)"

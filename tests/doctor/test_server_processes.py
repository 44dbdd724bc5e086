"""Who counts as a worker of ours: one way to read names, and no look-alikes."""

from faststream_outbox._internal.connections.identity import ConnectionName
from faststream_outbox._internal.doctor.server import Workers, counted_workers
from tests.doctor.clinic import Clinic


def test_workers_are_counted_by_process_and_listeners_among_them() -> None:
    roles = (("a" * 8, "claim"), ("a" * 8, "listen"), ("b" * 8, "read"), ("c" * 8, "overview"), ("d" * 8, "notify"))
    names = [ConnectionName(worker_id, role, "web", 7, None) for worker_id, role in roles]
    assert counted_workers(names) == Workers(connections=3, processes=2, listeners=1)


async def test_name_that_only_looks_like_ours_is_nobody(clinic: Clinic) -> None:
    """A name without host and pid is not one of ours, whatever it begins with: `doctor` and `workers` agree."""
    for other in ("outbox 0a1b2c3d claim host", "outbox 0a1b claim host/12", "outbox 0a1b2c3d claim "):
        with clinic.session(application_name=other):
            assert await clinic.found("listener") == [], other

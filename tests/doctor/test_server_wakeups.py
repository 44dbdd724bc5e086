"""Who listens, by the names of connections, and a queue of notifications that fills up."""

import os

import pytest

from faststream_outbox._internal.doctor.finding import Limits
from faststream_outbox._internal.doctor.server import judge_notifications
from faststream_outbox._internal.sql.doctor_rows import NotificationsRow
from tests.doctor.clinic import Clinic

WORKER = "outbox 0a1b2c3d {role} host/12"


async def test_process_of_which_no_connection_listens_is_mentioned(clinic: Clinic) -> None:
    assert await clinic.found("listener") == [], "nobody works here"
    with clinic.session(application_name=WORKER.format(role="claim")):
        finding = await clinic.one("listener")
        assert finding.facts == {"connections": 1, "processes": 1, "listeners": 0}
        assert finding.title.startswith("1 process of ours")
        with clinic.session(application_name=WORKER.format(role="listen")):
            assert await clinic.found("listener") == []
    for other in ("outbox of mine", WORKER.format(role="overview"), WORKER.format(role="notify")):
        with clinic.session(application_name=other):
            assert await clinic.found("listener") == []


@pytest.mark.skipif(int(os.environ.get("OUTBOX_TEST_PG", "18")) < 17, reason="its queue cannot be made small")
async def test_listener_in_a_transaction_that_fills_the_queue_is_named_and_can_be_ended(own_clinic: Clinic) -> None:
    assert await own_clinic.found("notifications") == []
    with own_clinic.session(autocommit=True) as deaf:
        deaf.execute("listen anything")
        deaf.execute("begin")
        deaf.execute("select 1")
        own_clinic.execute("select pg_notify('anything', n || repeat('x', 7000)) from generate_series(1, 30) n")
        finding = await own_clinic.one("notifications")
        assert deaf.info.backend_pid in finding.facts["pids"]  # type: ignore[operator]
        await own_clinic.repair(finding)
    await own_clinic.healed("notifications")


def test_half_full_is_critical() -> None:
    row = NotificationsRow(0.6, None, None, None, None, None, None)
    (finding,) = judge_notifications([row], Limits())
    assert (finding.severity, finding.repair) == ("critical", None)
    assert list(judge_notifications([row._replace(share=0.0)], Limits())) == []

"""Transactions that drew a position and stay open; groups that are gone; pauses that were forgotten."""

import pytest

from faststream_outbox._internal.doctor.topics import judge_gaps
from faststream_outbox._internal.sql.overview_rows import OpenGap
from faststream_outbox.log import OutboxMessage
from tests.cases import each
from tests.doctor.clinic import Clinic

SOON = {"gap_seconds": 0.0}
GAP = OpenGap(5, 7, None, 90.0, None, None, "app", None, None, None, None, None, None, None)


async def _behind_a_gap(clinic: Clinic) -> None:
    """Publish and sequence, so that what is missing before is a gap."""
    await clinic.publish(2)
    await clinic.log.lag()


async def test_session_that_drew_a_position_is_named_and_can_be_ended(clinic: Clinic) -> None:
    with clinic.session(autocommit=True) as innocent:
        innocent.execute("begin")
        innocent.execute("insert into outbox (queue, payload) values ('q', '')")
        async with clinic.engine.connect() as connection:
            await clinic.log.publish(connection, OutboxMessage("orders/1", 1))
            pid = (await connection.exec_driver_sql("select pg_backend_pid()")).scalar_one()
            await _behind_a_gap(clinic)
            assert await clinic.found("gaps") == [], "a young gap is nobody's fault"
            finding = await clinic.one("gaps", **SOON)
            assert finding.facts["pid"] == pid != innocent.info.backend_pid
            assert (finding.facts["first_position"], finding.facts["last_position"]) == (1, 1)
            assert f"Session {pid} has drawn a number" in finding.detail
            await clinic.repair(finding)
            await connection.invalidate()
    await clinic.healed("gaps", f"Session {pid} ", **SOON)
    assert await clinic.found("gaps", **SOON) == []


async def test_prepared_transaction_that_drew_a_position_is_named_and_can_be_rolled_back(own_clinic: Clinic) -> None:
    async with own_clinic.engine.connect() as connection:
        await own_clinic.log.publish(connection, OutboxMessage("orders/1", 1))
        await connection.exec_driver_sql("prepare transaction 'half way'")
    await _behind_a_gap(own_clinic)
    finding = await own_clinic.one("gaps", **SOON)
    assert finding.facts["gid"] == "half way"
    await own_clinic.repair(finding)
    assert await own_clinic.found("gaps", **SOON) == []


def test_gap_without_an_owner_on_a_standby_points_at_the_primary() -> None:
    (finding,) = judge_gaps([GAP, GAP._replace(lo=9, hi=9)])
    assert finding.detail == "Positions 5 to 9. Whose they are is known on the primary: examine that one."
    assert finding.title.startswith("4 positions")


@each("running", [None, 100.0])
def test_hidden_session_is_named_by_its_pid(running: float | None) -> None:
    (finding,) = judge_gaps([GAP._replace(pid=7, running=running)])
    assert finding.repair == "SELECT pg_terminate_backend(7);"


async def _group_behind(clinic: Clinic, name: str = "billing", uri: str = "") -> None:
    await clinic.publish(*range(5))
    async with clinic.engine.begin() as connection:
        await clinic.log.seek(connection, "earliest", name, uri, create=True)
    await clinic.log.lag()


@pytest.mark.parametrize(("name", "uri"), [("billing", ""), ('it\'s "mine"', "orders")])
async def test_group_that_is_gone_is_named_and_can_be_deleted(name: str, uri: str, clinic: Clinic) -> None:
    await _group_behind(clinic, name, uri)
    assert await clinic.found("groups") == []
    clinic.execute("update outbox_log_offsets set updated_at = now() - interval '10 days'")
    finding = await clinic.heals("groups")
    assert finding.facts["messages"] == 5
    assert "10 days" in finding.title


async def test_group_that_has_read_everything_holds_nothing_back(clinic: Clinic) -> None:
    await _group_behind(clinic)
    async with clinic.engine.begin() as connection:
        await clinic.log.seek(connection, "latest", "billing")
    clinic.execute("update outbox_log_offsets set updated_at = now() - interval '10 days'")
    assert await clinic.found("groups") == []


async def test_pause_of_a_group_that_was_forgotten_can_be_ended(clinic: Clinic) -> None:
    await _group_behind(clinic)
    await clinic.log.groups.pause("billing")
    assert await clinic.found("paused_groups") == []
    clinic.execute("update outbox_log_offsets set paused_at = now() - interval '2 days' where paused_at is not null")
    finding = await clinic.heals("paused_groups")
    assert "2 days" in finding.title
    assert await clinic.log.groups.paused() == []

"""The server: what it promises, its clock, what this role sees of it, connections, poolers, and who listens."""

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox._internal.connections.identity import ConnectionName
from faststream_outbox._internal.doctor.finding import Limits
from faststream_outbox._internal.doctor.server import (
    Workers,
    counted_workers,
    judge_clock,
    judge_connections,
    judge_notifications,
    judge_pooler,
    judge_rights,
    judge_server,
)
from faststream_outbox._internal.sql.doctor_rows import BudgetRow, NotificationsRow, ServerRow
from tests.cases import case
from tests.doctor.clinic import Clinic
from tests.pgbouncer.pooler import pooled
from tests.waiting import eventually

PRIMARY = ServerRow(180000, False, "me", "app", True)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BUDGET = BudgetRow(100, 3, 20, 20, -1, 10)
WORKER = "outbox 0a1b2c3d {role} host/12"


async def test_setting_that_loses_commits_is_critical_and_can_be_taken_back(own_clinic: Clinic) -> None:
    assert await own_clinic.found("durability") == []
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        with case(setting):
            own_clinic.execute(f"alter system set {setting} = off", "select pg_reload_conf()")
            (finding,) = await eventually(lambda: own_clinic.found("durability"))
            assert (finding.severity, finding.title) == ("critical", f"{setting} is off")
            await own_clinic.repair(finding)
            await own_clinic.healed("durability")


async def test_setting_of_a_role_or_a_database_is_taken_back_there(own_clinic: Clinic) -> None:
    role = f"role {own_clinic.engine.url.username}"
    for where in (role, "database postgres", f"{role} in database postgres"):
        with case(where):
            own_clinic.execute(f"alter {where} set synchronous_commit = off")
            await own_clinic.heals("durability")


async def test_command_line_is_left_to_whoever_starts_the_server(clinic: Clinic) -> None:
    finding = await clinic.one("durability", "fsync")
    assert finding.repair is None


def test_clocks_that_are_apart_by_more_than_the_way() -> None:
    later = NOON + timedelta(seconds=1)
    assert list(judge_clock(NOON, NOON, later, 2.0)) == []
    assert list(judge_clock(NOON, later + timedelta(seconds=1), later, 2.0)) == []
    (ahead,) = judge_clock(NOON, later + timedelta(minutes=5), later, 2.0)
    (behind,) = judge_clock(NOON, NOON - timedelta(minutes=5), later, 2.0)
    assert ahead.title == "The server's clock is 5 minutes ahead of that of this machine"
    assert behind.title == "The server's clock is 5 minutes behind that of this machine"
    assert "chronyc" in (ahead.repair or "")


async def test_clocks_of_one_machine_agree(clinic: Clinic) -> None:
    assert await clinic.found("clock") == []


def test_standby_and_old_server_are_said() -> None:
    assert list(judge_server(PRIMARY)) == []
    (standby,) = judge_server(PRIMARY._replace(is_standby=True))
    (old,) = judge_server(PRIMARY._replace(version=140005))
    assert (standby.severity, old.severity) == ("notice", "critical")


def test_hidden_sessions_are_said_with_the_grant() -> None:
    assert list(judge_rights(PRIMARY, 0)) == []
    (finding,) = judge_rights(PRIMARY._replace(sees_all=False, role="shop viewer"), 3)
    assert finding.repair == 'GRANT pg_read_all_stats TO "shop viewer";'


@contextlib.contextmanager
def sessions(clinic: Clinic, count: int) -> Iterator[None]:
    """So many sessions of others."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(clinic.session(autocommit=True))
        yield


@pytest.mark.slow
async def test_server_whose_connections_run_out_gets_more(own_clinic: Clinic) -> None:
    own_clinic.execute("alter system set max_connections = 20")
    own_clinic.server.restart()
    await own_clinic.engine.dispose()
    assert await own_clinic.found("connections") == []
    with sessions(own_clinic, 13):
        finding = await own_clinic.one("connections")
        assert finding.facts["most"] == 20
        await own_clinic.repair(finding)
    own_clinic.server.restart()
    await own_clinic.engine.dispose()
    with sessions(own_clinic, 13):
        assert await own_clinic.found("connections") == []
    own_clinic.execute("alter system reset max_connections")


async def test_database_whose_connections_run_out_gets_more(own_clinic: Clinic) -> None:
    own_clinic.execute("alter database postgres connection limit 10")
    with sessions(own_clinic, 9):
        finding = await own_clinic.heals("connections")
    assert "of the database" in finding.title
    own_clinic.execute("alter database postgres connection limit -1")


def test_nearly_full_is_critical() -> None:
    limits = Limits()
    assert list(judge_connections(BUDGET, 4, PRIMARY, limits)) == []
    (warning,) = judge_connections(BUDGET._replace(used=75), 4, PRIMARY, limits)
    (critical,) = judge_connections(BUDGET._replace(used=95), 4, PRIMARY, limits)
    assert (warning.severity, critical.severity) == ("warning", "critical")


async def test_session_that_is_idle_in_a_transaction_is_named_and_can_be_ended(clinic: Clinic) -> None:
    with clinic.session(autocommit=True) as session:
        session.execute("begin")
        session.execute("select 1 from outbox")
        assert await clinic.found("idle") == []
        finding = await clinic.heals("idle", f"Session {session.info.backend_pid} ", transaction_seconds=0.0)
        with pytest.raises(psycopg.OperationalError):
            session.execute("select 1")
    assert "select 1 from outbox" in finding.detail


@pytest.mark.slow
@pytest.mark.pgbouncer
@pytest.mark.parametrize(("mode", "servers"), [("transaction", 1), ("transaction", 3), ("session", 1), ("session", 3)])
async def test_pooler_in_transaction_mode_is_seen_and_one_in_session_mode_is_not(
    mode: str, servers: int, clinic: Clinic, database_url: URL, tmp_path: Path
) -> None:
    async with pooled(database_url, tmp_path, servers=servers, mode=mode) as there:
        url = there.url.set(drivername="postgresql+psycopg")
        engine = create_async_engine(url, connect_args={"prepare_threshold": None})
        doctor = clinic.doctor(engine)
        doctor._timeout = 5.0
        findings = await doctor.examine(only=["schema", "pooler"])
        await engine.dispose()
    assert {item.check: item.severity for item in findings} == {
        "schema": "ok",
        "pooler": "warning" if mode == "transaction" else "ok",
    }
    if mode == "transaction":
        assert "listen_dsn" in (findings[0].repair or "")


async def test_no_pooler_is_seen_where_there_is_none(clinic: Clinic) -> None:
    assert await clinic.found("pooler") == []


def test_pooler_past_which_somebody_listens_is_a_notice() -> None:
    assert list(judge_pooler("sessions", Workers(0, 0, 0))) == []
    (finding,) = judge_pooler("transactions", Workers(4, 1, 1))
    assert finding.severity == "notice"


def test_workers_are_counted_by_process_and_listeners_among_them() -> None:
    roles = (("a" * 8, "claim"), ("a" * 8, "listen"), ("b" * 8, "read"), ("c" * 8, "overview"), ("d" * 8, "notify"))
    names = [ConnectionName(worker_id, role, "web", 7, None) for worker_id, role in roles]
    assert counted_workers(names) == Workers(connections=3, processes=2, listeners=1)


async def test_process_of_which_no_connection_listens_is_mentioned(clinic: Clinic) -> None:
    assert await clinic.found("listener") == [], "nobody works here"
    with clinic.session(application_name=WORKER.format(role="claim")):
        finding = await clinic.one("listener")
        assert finding.facts == {"connections": 1, "processes": 1, "listeners": 0}
        assert finding.title.startswith("1 process of ours")
        with clinic.session(application_name=WORKER.format(role="listen")):
            assert await clinic.found("listener") == []
    # Without host and pid, a name is not one of ours, whatever it begins with: `doctor` and `workers` agree.
    alike = ("outbox of mine", "outbox 0a1b2c3d claim host", "outbox 0a1b claim host/12", "outbox 0a1b2c3d claim ")
    for other in (*alike, WORKER.format(role="overview"), WORKER.format(role="notify")):
        with clinic.session(application_name=other):
            assert await clinic.found("listener") == [], other


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

"""Connections that run out, sessions that only hold locks, and poolers; each with what repairs it."""

import contextlib
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox._internal.doctor.finding import Limits
from faststream_outbox._internal.doctor.server import Workers, judge_connections, judge_pooler
from faststream_outbox._internal.sql.doctor_rows import BudgetRow, ServerRow
from tests.doctor.clinic import Clinic
from tests.pgbouncer.pooler import pooled

PRIMARY = ServerRow(180000, False, "me", "app", True)
BUDGET = BudgetRow(100, 3, 20, 20, -1, 10)
NOBODY = Workers(0, 0, 0)


@pytest.mark.slow
async def test_server_whose_connections_run_out_gets_more(own_clinic: Clinic) -> None:
    own_clinic.execute("alter system set max_connections = 20")
    own_clinic.server.restart()
    await own_clinic.engine.dispose()
    assert await own_clinic.found("connections") == []
    with contextlib.ExitStack() as sessions:
        for _ in range(13):
            sessions.enter_context(own_clinic.session(autocommit=True))
        finding = await own_clinic.one("connections")
        assert finding.facts["most"] == 20
        await own_clinic.repair(finding)
    own_clinic.server.restart()
    await own_clinic.engine.dispose()
    with contextlib.ExitStack() as sessions:
        for _ in range(13):
            sessions.enter_context(own_clinic.session(autocommit=True))
        assert await own_clinic.found("connections") == []
    own_clinic.execute("alter system reset max_connections")


async def test_database_whose_connections_run_out_gets_more(own_clinic: Clinic) -> None:
    own_clinic.execute("alter database postgres connection limit 10")
    with contextlib.ExitStack() as sessions:
        for _ in range(9):
            sessions.enter_context(own_clinic.session(autocommit=True))
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
    assert list(judge_pooler("sessions", NOBODY)) == []
    (finding,) = judge_pooler("transactions", Workers(4, 1, 1))
    assert finding.severity == "notice"

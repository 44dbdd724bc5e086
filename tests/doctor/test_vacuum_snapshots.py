"""Whoever holds an old snapshot is named, and the command that is printed ends it; nobody else is blamed."""

import psycopg
import pytest

from faststream_outbox._internal.doctor.finding import Limits
from faststream_outbox._internal.doctor.vacuum import judge_slots, judge_standbys
from faststream_outbox._internal.sql.doctor_rows import FeedbackRow, SlotRow
from tests.doctor.clinic import Clinic
from tests.waiting import eventually

NOW = {"transaction_seconds": 0.0}
SLOT = SlotRow("forgotten", "physical", False, False, None, None, 0.0, 3600.0)


@pytest.mark.parametrize(
    "begins",
    [
        ["begin isolation level repeatable read", "select 1 from outbox"],
        ["begin", "insert into outbox (queue, payload) values ('q', '')"],
    ],
)
async def test_session_with_an_old_snapshot_is_named_and_can_be_ended(begins: list[str], clinic: Clinic) -> None:
    with clinic.session(application_name="a report\nof mine", autocommit=True) as session:
        for statement in begins:
            session.execute(statement)
        assert await clinic.found("transactions") == [], "a young transaction is nobody's fault"
        pid = session.info.backend_pid
        finding = await clinic.heals("transactions", f"Session {pid} ", **NOW)
        with pytest.raises(psycopg.OperationalError):
            session.execute("select 1")
    assert finding.severity in ("warning", "critical")
    assert finding.facts["pid"] == pid
    assert begins[-1] in finding.detail
    assert "a report" in finding.detail
    assert "\n" not in finding.detail, "names are a stranger's"


async def test_session_without_a_transaction_is_not_named(clinic: Clinic) -> None:
    with clinic.session(autocommit=True) as session:
        session.execute("select 1 from outbox")
        found = await clinic.found("transactions", **NOW)
        assert [item for item in found if item.facts["pid"] == session.info.backend_pid] == []


async def test_transaction_in_another_database_keeps_nothing_here(clinic: Clinic) -> None:
    dsn = clinic.server.dsn(driver="")
    with psycopg.connect(dsn) as session:
        session.execute("begin isolation level repeatable read")
        session.execute("select 1")
        found = await clinic.found("transactions", **NOW)
        assert [item for item in found if item.facts["pid"] == session.info.backend_pid] == []


async def test_old_transaction_is_critical(clinic: Clinic) -> None:
    with clinic.session() as session:
        session.execute("select 1 from outbox")
        session.execute("insert into outbox (queue, payload) values ('q', '')")
        finding = await clinic.one("transactions", f"Session {session.info.backend_pid} ", **NOW)
    assert finding.severity == "critical"


@pytest.mark.parametrize("gid", ["an order", "it's \\ 100%", "two\nlines"])
async def test_prepared_transaction_is_named_and_can_be_rolled_back(gid: str, own_clinic: Clinic) -> None:
    with own_clinic.session() as session:
        session.execute("insert into outbox (queue, payload) values ('q', '')")
        session.execute(f"prepare transaction '{gid.replace(chr(39), chr(39) * 2)}'")
    assert await own_clinic.found("prepared") == []
    finding = await own_clinic.heals("prepared", **NOW)
    assert finding.facts["gid"] == gid


@pytest.mark.parametrize("kind", ["physical", "logical"])
async def test_slot_that_nobody_uses_is_named_and_can_be_dropped(kind: str, own_clinic: Clinic) -> None:
    if kind == "logical":
        own_clinic.execute("alter system set wal_level = logical")
        own_clinic.server.restart()
        await own_clinic.engine.dispose()
        own_clinic.execute("select pg_create_logical_replication_slot('gone', 'pgoutput')")
    else:
        own_clinic.execute("select pg_create_physical_replication_slot('gone', true)")
    assert await own_clinic.found("slots") == []
    # What PostgreSQL before 17 knows of the time is the number of transactions; all of them know the WAL.
    finding = await own_clinic.heals("slots", slot_seconds=0.0, kept_wal_bytes=0)
    assert "WAL" in finding.cost
    assert finding.facts["name"] == "gone"


def test_slot_in_use_and_young_slots_are_not_blamed() -> None:
    limits = Limits()
    fine = [
        SLOT._replace(is_active=True),
        SLOT._replace(inactive_seconds=1.0),
        SLOT._replace(inactive_seconds=None, transactions=10),
        SLOT._replace(is_temporary=True),
    ]
    assert list(judge_slots(fine, limits)) == []


def test_slot_that_keeps_dead_rows_says_so() -> None:
    (held,) = judge_slots([SLOT._replace(transactions=10**6)], Limits())
    (by_standby,) = judge_slots([SLOT._replace(is_active=True, transactions=10**6)], Limits())
    assert held.severity == "critical"
    assert "No row that died" in held.cost
    assert "hot_standby_feedback" in by_standby.detail
    assert "on the standby" in (by_standby.repair or "")


def test_standby_that_keeps_dead_rows_is_named() -> None:
    (finding,) = judge_standbys([FeedbackRow(7, "reports", "10.0.0.1", 10**6)])
    assert "reports" in finding.title
    assert "10.0.0.1" in finding.detail
    assert list(judge_standbys([])) == []


async def test_dead_rows_can_be_removed_once_the_snapshot_is_gone(clinic: Clinic) -> None:
    """The whole way: a report keeps dead rows, vacuum cannot remove them, the session is named and ended."""
    with clinic.session(autocommit=True) as session:
        session.execute("begin isolation level repeatable read")
        session.execute("select 1 from outbox")
        clinic.execute(
            "insert into outbox (queue, payload) select 'q', '' from generate_series(1, 200)", "delete from outbox"
        )
        limits = {"dead_rows": 100}
        finding = await eventually(lambda: clinic.found("dead_rows", **limits))
        clinic.psql(finding[0].repair)
        kept = await clinic.one("dead_rows", "public.outbox has", **limits)
        pid = session.info.backend_pid
        await clinic.repair(await clinic.one("transactions", f"Session {pid} ", **NOW))
        await clinic.healed("transactions", f"Session {pid} ", **NOW)
    await clinic.repair(kept)
    await clinic.healed("dead_rows", **limits)

"""Vacuum that does not come or does not keep up, and whoever holds an old snapshot; each with what repairs it."""

import psycopg
import pytest

from faststream_outbox._internal.doctor.finding import Limits
from faststream_outbox._internal.doctor.vacuum import judge_dead_rows, judge_slots, judge_standbys, judge_wraparound
from faststream_outbox._internal.sql.doctor_rows import FeedbackRow, RelationRow, SettingRow, SlotRow
from tests.cases import case
from tests.doctor.clinic import Clinic
from tests.waiting import eventually

TABLE = RelationRow(
    "public.outbox", "public", "outbox", None, False, False, (), 1e6, 50_000, 10**6, None, 1000, 8192, None
)
NOW = {"transaction_seconds": 0.0}
SLOT = SlotRow("forgotten", "physical", False, False, None, None, 0.0, 3600.0)
DEAD_ROWS = "insert into outbox (queue, payload) select 'q', '' from generate_series(1, 200)", "delete from outbox"
USUAL = [
    SettingRow("autovacuum_vacuum_scale_factor", "0.2", "default"),
    SettingRow("autovacuum_vacuum_threshold", "50", "default"),
]


async def test_table_without_autovacuum_is_named_and_gets_it_again(own_clinic: Clinic) -> None:
    for table in ("outbox", "outbox_dlq", "outbox_log_offsets"):
        with case(table):
            own_clinic.execute(f"alter table {table} set (autovacuum_enabled = off)")
            finding = await own_clinic.heals("autovacuum", "switched off")
            assert finding.facts["table"] == f"public.{table}"


async def test_settings_that_do_not_suit_a_queue_are_mentioned(own_clinic: Clinic) -> None:
    assert (await own_clinic.heals("autovacuum", "too late")).severity == "notice"
    own_clinic.execute("alter table outbox set (fillfactor = 90)")
    assert "fillfactor" in (await own_clinic.heals("autovacuum")).detail
    assert await own_clinic.found("autovacuum") == []


@pytest.mark.parametrize("setting", ["autovacuum", "track_counts"])
async def test_server_without_autovacuum_is_named(setting: str, own_clinic: Clinic) -> None:
    own_clinic.execute(f"alter system set {setting} = off", "select pg_reload_conf()")
    about = f"{setting} is off"

    async def is_off() -> bool:
        return any(about in item.title for item in await own_clinic.found("autovacuum"))

    await eventually(is_off)
    assert (await own_clinic.heals("autovacuum", about)).severity == "critical"


async def test_what_was_set_on_the_command_line_is_left_to_whoever_starts_the_server(clinic: Clinic) -> None:
    finding = await clinic.one("autovacuum", "autovacuum is off")
    assert finding.repair is None
    assert "command line" in finding.detail


async def test_dead_rows_are_counted_and_can_be_vacuumed(clinic: Clinic) -> None:
    clinic.execute(*DEAD_ROWS)
    await eventually(lambda: clinic.found("dead_rows", dead_rows=150))
    finding = await clinic.heals("dead_rows", dead_rows=150)
    assert "It was never vacuumed" in finding.detail


def test_dead_rows_that_autovacuum_does_not_come_for_yet_are_no_fault() -> None:
    limits = Limits()
    assert list(judge_dead_rows(USUAL, [TABLE], limits)) == [], "a fifth of a million is what it waits for"
    by_count = TABLE._replace(options=("autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=1000"))
    assert len(list(judge_dead_rows(USUAL, [by_count], limits))) == 1
    assert list(judge_dead_rows(USUAL, [by_count._replace(dead_rows=9000)], limits)) == []


async def test_old_transaction_numbers_are_named_and_can_be_frozen(clinic: Clinic) -> None:
    with clinic.session(autocommit=True) as session:
        for _ in range(300):
            session.execute("select pg_current_xact_id()")
    assert await clinic.found("wraparound") == []
    for finding in await clinic.found("wraparound", frozen_age=200):
        await clinic.repair(finding)
    assert await clinic.found("wraparound", frozen_age=200) == []


def test_numbers_that_are_about_to_run_out_are_critical() -> None:
    (finding,) = judge_wraparound([TABLE._replace(frozen_age=1_900_000_000)], 10**9)
    assert finding.severity == "critical"
    assert list(judge_wraparound([TABLE._replace(frozen_age=None)], 10**9)) == []


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
    assert (finding.severity, finding.facts["pid"]) == ("critical", pid)
    assert begins[-1] in finding.detail
    assert "a report" in finding.detail
    assert "\n" not in finding.detail, "names are a stranger's"


async def test_session_without_a_transaction_is_not_named(clinic: Clinic) -> None:
    with clinic.session(autocommit=True) as session:
        session.execute("select 1 from outbox")
        named = [item.facts["pid"] for item in await clinic.found("transactions", **NOW)]
        assert session.info.backend_pid not in named


async def test_transaction_in_another_database_keeps_nothing_here(clinic: Clinic) -> None:
    with psycopg.connect(clinic.server.dsn(driver="")) as session:
        session.execute("begin isolation level repeatable read")
        session.execute("select 1")
        named = [item.facts["pid"] for item in await clinic.found("transactions", **NOW)]
        assert session.info.backend_pid not in named


async def test_prepared_transaction_is_named_and_can_be_rolled_back(own_clinic: Clinic) -> None:
    for gid in ("an order", "it's \\ 100%", "two\nlines"):
        with case(gid), own_clinic.session() as session:
            session.execute("insert into outbox (queue, payload) values ('q', '')")
            session.execute(f"prepare transaction '{gid.replace(chr(39), chr(39) * 2)}'")
            assert await own_clinic.found("prepared") == []
            assert (await own_clinic.heals("prepared", **NOW)).facts["gid"] == gid


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
    fine = [{"is_active": True}, {"is_temporary": True}, {"inactive_seconds": 1.0}]
    fine += [{"inactive_seconds": None, "transactions": 10}]
    assert list(judge_slots([SLOT._replace(**each) for each in fine], Limits())) == []


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
        clinic.execute(*DEAD_ROWS)
        limits = {"dead_rows": 100}
        finding = await eventually(lambda: clinic.found("dead_rows", **limits))
        clinic.psql(finding[0].repair)
        kept = await clinic.one("dead_rows", "public.outbox has", **limits)
        pid = session.info.backend_pid
        await clinic.repair(await clinic.one("transactions", f"Session {pid} ", **NOW))
        await clinic.healed("transactions", f"Session {pid} ", **NOW)
    await clinic.repair(kept)
    await clinic.healed("dead_rows", **limits)

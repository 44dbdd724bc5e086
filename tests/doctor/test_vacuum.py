"""Vacuum that does not come, does not keep up, or leaves old transaction numbers; each repaired by what is printed."""

import pytest

from faststream_outbox._internal.doctor.finding import Limits
from faststream_outbox._internal.doctor.vacuum import judge_dead_rows, judge_wraparound
from faststream_outbox._internal.sql.doctor_rows import RelationRow, SettingRow
from tests.doctor.clinic import Clinic
from tests.waiting import eventually

TABLE = RelationRow(
    "public.outbox", "public", "outbox", None, False, False, (), 1e6, 50_000, 10**6, None, 1000, 8192, None
)
USUAL = [
    SettingRow("autovacuum_vacuum_scale_factor", "0.2", "default"),
    SettingRow("autovacuum_vacuum_threshold", "50", "default"),
]


@pytest.mark.parametrize("table", ["outbox", "outbox_dlq", "outbox_log_offsets"])
async def test_table_without_autovacuum_is_named_and_gets_it_again(table: str, own_clinic: Clinic) -> None:
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
    clinic.execute(
        "insert into outbox (queue, payload) select 'q', '' from generate_series(1, 200)",
        "delete from outbox",
    )
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

"""The server itself: what it promises, its clock, and what this role may see of it."""

from datetime import UTC, datetime, timedelta

import pytest

from faststream_outbox._internal.doctor.server import judge_clock, judge_rights, judge_server
from faststream_outbox._internal.sql.doctor_rows import ServerRow
from tests.doctor.clinic import Clinic
from tests.waiting import eventually

PRIMARY = ServerRow(180000, False, "me", "app", True)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
async def test_setting_that_loses_commits_is_critical_and_can_be_taken_back(setting: str, own_clinic: Clinic) -> None:
    assert await own_clinic.found("durability") == []
    own_clinic.execute(f"alter system set {setting} = off", "select pg_reload_conf()")
    (finding,) = await eventually(lambda: own_clinic.found("durability"))
    assert (finding.severity, finding.title) == ("critical", f"{setting} is off")
    await own_clinic.repair(finding)
    await own_clinic.healed("durability")


@pytest.mark.parametrize("where", ["role postgres", "database postgres", "role postgres in database postgres"])
async def test_setting_of_a_role_or_a_database_is_taken_back_there(where: str, own_clinic: Clinic) -> None:
    user = own_clinic.engine.url.username
    own_clinic.execute(f"alter {where.replace('role postgres', f'role {user}')} set synchronous_commit = off")
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

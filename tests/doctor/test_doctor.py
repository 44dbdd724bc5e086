"""The doctor as a whole: nothing on a healthy server, one finding for what cannot run, and all others beside it."""

import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import URL, Engine, MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import make_dlq_table, make_outbox_table
from faststream_outbox._internal.doctor.doctor import CHECKS, failed, unreachable
from faststream_outbox._internal.doctor.queues import READY
from faststream_outbox._internal.schema.given import Tables
from faststream_outbox.doctor import Doctor, Finding, worst
from faststream_outbox.errors import InvalidOption, InvalidOptionType, UnknownName
from faststream_outbox.testing.postgres import PostgresServer
from tests.cases import each
from tests.doctor.clinic import Clinic
from tests.rights.stage import Stage
from tests.waiting import eventually

# How the servers of the tests are started: see tests/conftest.py.
BY_DESIGN = {"fsync is off", "autovacuum is off: no table is vacuumed by itself", "public.outbox is vacuumed too late"}


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_healthy_server_is_called_healthy_by_every_check(driver: str, clinic: Clinic, database_url: URL) -> None:
    engine = create_async_engine(database_url.set(drivername=f"postgresql+{driver}"))
    findings = await clinic.doctor(engine).examine()
    await engine.dispose()
    assert [item for item in findings if item.severity != "ok" and item.title not in BY_DESIGN] == []
    assert {item.check for item in findings} == {check.name for check in CHECKS}
    assert all(item.title and not item.repair for item in findings if item.severity == "ok")
    json.dumps([dict(item.facts) for item in findings])


async def test_checks_can_be_chosen_and_a_name_that_is_none_is_refused(clinic: Clinic) -> None:
    found = await clinic.doctor().examine(only=["clock", "ready"])
    assert [item.check for item in found] == ["clock", "ready"]
    with pytest.raises(UnknownName, match="did you mean 'clock'"):
        await clinic.doctor().examine(only=["clok"])


async def test_worst_comes_first(clinic: Clinic) -> None:
    findings = await clinic.doctor().examine()
    order = ["critical", "warning", "notice", "ok"]
    assert [order.index(item.severity) for item in findings] == sorted(order.index(item.severity) for item in findings)
    assert worst(findings) == findings[0].severity
    assert worst([]) == "ok"


async def test_only_checks_of_the_tables_that_there_are_run(clinic: Clinic) -> None:
    async def checks(doctor: Doctor) -> set[str]:
        return {item.check for item in await doctor.examine() if "could not run" not in item.title}

    alone = await checks(Doctor(clinic.engine))
    queues = await checks(Doctor(clinic.engine, table=clinic.table))
    topics = await checks(Doctor(clinic.engine, log_tables=clinic.log_tables))
    assert {"server", "schema", "transactions"} <= alone
    assert queues - alone == {"ids", "ready", "paused_queues"}
    assert topics - alone == {"positions", "gaps", "groups", "paused_groups", "parked_keys", "partitions"}


async def test_server_that_cannot_be_reached_is_the_only_finding(clinic: Clinic) -> None:
    engine = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nothing")
    (finding,) = await Doctor(engine, table=clinic.table).examine()
    assert (finding.check, finding.severity) == ("server", "critical")


@pytest.mark.slow
async def test_check_that_waits_too_long_is_given_up_and_the_others_run(clinic: Clinic) -> None:
    doctor = Doctor(clinic.engine, table=clinic.table, dlq_table=clinic.dlq_table, timeout=5.0)
    with clinic.session() as migration:
        migration.execute("lock table outbox_dlq in access exclusive mode")
        findings = {item.check: item for item in await doctor.examine()}
    assert "took too long" in findings["dead_letters"].title
    assert findings["dead_letters"].severity == "notice"
    assert findings["ready"].severity == findings["paused_queues"].severity == "ok"
    # The server goes on for a moment with what was given up.
    await clinic.engine.dispose()
    await eventually(lambda: sessions_left(clinic) == 0)


async def test_nothing_is_left_on_the_server(clinic: Clinic) -> None:
    await clinic.doctor().examine()
    await clinic.engine.dispose()
    await eventually(lambda: sessions_left(clinic) == 0)


def sessions_left(clinic: Clinic) -> int:
    """How many sessions of the doctor's the server still has."""
    with clinic.session(autocommit=True) as session:
        asked = (
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and application_name ~ '^outbox [0-9a-f]+ overview '"
        )
        ((count,),) = session.execute(asked).fetchall()
        return int(count)


def test_options_are_checked_where_they_are_given(engine: AsyncEngine) -> None:
    metadata = MetaData()
    table, dead = make_outbox_table(metadata), make_dlq_table(metadata)
    with pytest.raises(InvalidOption, match="dead letters"):
        Doctor(engine, table=dead)
    with pytest.raises(InvalidOption, match="pass table="):
        Doctor(engine, dlq_table=dead)
    with pytest.raises(InvalidOption, match="timeout"):
        Doctor(engine, table=table, timeout=0)
    with pytest.raises(InvalidOptionType, match="log_tables"):
        Doctor(engine, log_tables=table)  # type: ignore[arg-type]


@pytest.fixture
def stage(builder: Engine, database_url: URL) -> Iterator[Stage]:
    made = Stage(builder, database_url)
    made.build()
    yield made
    made.clear()


async def _as_viewer(stage: Stage) -> list[Finding]:
    engine = stage.engine("outbox_viewer")
    tables = {"table": stage.table, "dlq_table": stage.dlq_table, "inbox_table": stage.inbox_table}
    doctor = Doctor(engine, **tables, log_tables=stage.log_tables, timeout=30.0)
    try:
        return [item for item in await doctor.examine() if item.severity != "ok"]
    finally:
        await engine.dispose()


async def test_viewer_is_enough_and_is_given_the_grants_that_it_lacks(stage: Stage) -> None:
    missing = [item for item in await _as_viewer(stage) if item.check in ("rights", "ids", "dead_ids", "positions")]
    assert {item.severity for item in missing} == {"notice"}
    stage.execute(*(item.repair.rstrip(";") for item in missing if item.repair))
    left = [item for item in await _as_viewer(stage) if item.title not in BY_DESIGN]
    assert [item.title for item in left] == ["messages.outbox is vacuumed too late"]


async def test_role_without_rights_on_the_tables_is_given_the_grant(stage: Stage) -> None:
    stage.execute("REVOKE SELECT ON outbox_dlq FROM outbox_viewer")
    refused = {item.check: item for item in await _as_viewer(stage) if "may not run" in item.title}
    assert set(refused) == {"dead_letters", "held_keys", "dead_ids"}
    for finding in refused.values():
        assert finding.severity == "notice"
        stage.execute((finding.repair or "").rstrip(";"))
    assert [item for item in await _as_viewer(stage) if "may not run" in item.title] == []


async def test_role_without_a_right_on_the_schema_is_given_the_grant(stage: Stage) -> None:
    stage.execute("REVOKE USAGE ON SCHEMA messages FROM outbox_viewer")
    refused = {item.check: item for item in await _as_viewer(stage) if "may not run" in item.title}
    assert {"schema", "dead_rows", "ready", "gaps"} <= set(refused)
    stage.execute((refused["schema"].repair or "").rstrip(";"))
    assert [item for item in await _as_viewer(stage) if "may not run" in item.title] == []


@pytest.fixture
async def standby(own_clinic: Clinic) -> AsyncIterator[AsyncEngine]:
    """A server that follows the clinic's own."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        directory.chmod(0o755)
        own_clinic.server.run("pg_basebackup", "-D", directory / "data", "-R", "--checkpoint=fast")
        settings = {"hot_standby_feedback": "on", "wal_receiver_status_interval": "1s"}
        settings["max_prepared_transactions"] = "10"
        with PostgresServer.start(version=own_clinic.server_version, settings=settings, directory=directory) as server:
            engine = create_async_engine(server.dsn())
            yield engine
            await engine.dispose()


@pytest.mark.slow
async def test_standby_can_be_examined_and_is_named_by_the_primary(own_clinic: Clinic, standby: AsyncEngine) -> None:
    await own_clinic.publish(1)
    findings = await own_clinic.doctor(standby).examine()
    assert {item.title for item in findings if item.severity != "ok"} == {
        "This is a standby",
        "public.outbox is vacuumed too late",
    }
    async with standby.connect() as report:
        await report.exec_driver_sql("set transaction isolation level repeatable read")
        await report.exec_driver_sql("select 1 from outbox")

        async def keeps() -> Sequence[Finding]:
            own_clinic.execute("select pg_current_xact_id()")
            return await own_clinic.found("standbys", kept_transactions=3)

        # What the standby kept before the report may be told first, and be gone with the next word of it.
        (finding,) = await eventually(keeps, message="the standby tells the primary what it keeps")
        repair = finding.repair
        async with standby.connect() as operator:
            await operator.exec_driver_sql(repair)
        await report.invalidate()
    await own_clinic.healed("standbys", kept_transactions=3)


class Said(Exception):
    """What a driver raises."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("it failed\nDETAIL: secret")
        self.sqlstate = sqlstate


PATIENT: Any = SimpleNamespace(
    engine=create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere"),
    connection=SimpleNamespace(timeout=5.0),
    server=SimpleNamespace(role="reader"),
    tables=Tables(),
)


@each(
    ("error", "title"),
    [
        (Said("42501"), "The role reader may not run the check ready"),
        (Said("42P01"), "The check ready misses a table"),
        (Said("3F000"), "The check ready misses a table"),
        (Said("42703"), "The check ready misses a column or a function"),
        (Said("42883"), "The check ready misses a column or a function"),
        (Said("42704"), "The check ready misses a column or a function"),
        (Said("57014"), "The check ready took too long"),
        (Said("55P03"), "The check ready took too long"),
        (TimeoutError(), "The check ready took too long"),
        (Said("XX000"), "The check ready could not run"),
        (ValueError(), "The check ready could not run"),
    ],
)
def test_the_title_says_what_is_missing(error: Exception, title: str) -> None:
    assert failed(READY, error, PATIENT).title == title


def test_the_details_of_an_error_are_left_out() -> None:
    finding = failed(READY, Said("XX000"), PATIENT)
    assert finding.facts == {"error": "it failed", "sqlstate": "XX000"}
    assert "secret" not in finding.detail


def test_an_error_without_words_is_said_by_its_name() -> None:
    assert unreachable(ValueError()).detail == "Connecting failed: ValueError"

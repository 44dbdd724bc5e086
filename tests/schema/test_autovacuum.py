"""The autovacuum statement: applied, seen by the check, taken back; impossible values are refused."""

from typing import Any

import pytest
from sqlalchemy import Engine, MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.errors import InvalidOption, SchemaMismatch
from faststream_outbox.schema import (
    find_differences,
    make_outbox_table,
    outbox_autovacuum_ddl,
    outbox_autovacuum_rollback_ddl,
    validate_schema,
)
from tests.cases import each


def settings_of(table: Table, sync_engine: Engine) -> list[str] | None:
    query = text("SELECT reloptions FROM pg_class WHERE relname = :name AND relkind = 'r'")
    with sync_engine.connect() as connection:
        settings: list[str] | None = connection.scalar(query, {"name": table.name})
    return settings


def run(statement: str, sync_engine: Engine) -> None:
    with sync_engine.begin() as connection:
        connection.execute(text(statement))


def test_without_options_it_sets_both_factors_to_0_and_both_thresholds_to_1000() -> None:
    assert outbox_autovacuum_ddl() == (
        "ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, "
        "autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 1000)"
    )


def test_names_are_quoted() -> None:
    assert outbox_autovacuum_ddl("My Out", schema="App S").startswith('ALTER TABLE "App S"."My Out" SET (')
    assert outbox_autovacuum_rollback_ddl('a"b').startswith('ALTER TABLE "a""b" RESET (')


def test_postgresql_takes_every_option(table: Table, sync_engine: Engine) -> None:
    run(
        outbox_autovacuum_ddl(vacuum_threshold=50, insert_threshold=60, vacuum_cost_delay=1.5, vacuum_cost_limit=2000),
        sync_engine,
    )
    assert settings_of(table, sync_engine) == [
        "fillfactor=45",
        "autovacuum_vacuum_scale_factor=0",
        "autovacuum_vacuum_threshold=50",
        "autovacuum_vacuum_insert_scale_factor=0",
        "autovacuum_vacuum_insert_threshold=60",
        "autovacuum_vacuum_cost_delay=1.5",
        "autovacuum_vacuum_cost_limit=2000",
    ]


HIGHEST = 2_147_483_647


@pytest.mark.parametrize("values", [(0, 0, 0, 1), (HIGHEST, HIGHEST, 100, 10_000)], ids=["lowest", "highest"])
def test_postgresql_takes_the_extremes(values: tuple[int, ...], table: Table, sync_engine: Engine) -> None:
    options = ("vacuum_threshold", "insert_threshold", "vacuum_cost_delay", "vacuum_cost_limit")
    run(outbox_autovacuum_ddl(table.name, **dict(zip(options, values, strict=True))), sync_engine)  # type: ignore[arg-type]


def test_the_rollback_leaves_only_what_was_there_before(table: Table, sync_engine: Engine) -> None:
    run(outbox_autovacuum_ddl(vacuum_cost_delay=2, vacuum_cost_limit=500), sync_engine)
    run(outbox_autovacuum_rollback_ddl(), sync_engine)
    assert settings_of(table, sync_engine) == ["fillfactor=45"]


async def test_the_check_passes_with_the_settings_of_which_the_dead_letters_need_none(
    engine: AsyncEngine, table: Table, dlq_table: Table, sync_engine: Engine
) -> None:
    run(outbox_autovacuum_ddl(table.name), sync_engine)
    await validate_schema(engine, table, dlq_table, check_autovacuum=True)


async def test_the_check_fails_after_the_rollback(engine: AsyncEngine, table: Table, sync_engine: Engine) -> None:
    run(outbox_autovacuum_ddl(table.name), sync_engine)
    run(outbox_autovacuum_rollback_ddl(table.name), sync_engine)
    with pytest.raises(SchemaMismatch, match="autovacuum_vacuum_scale_factor = 0"):
        await validate_schema(engine, table, check_autovacuum=True)


@pytest.mark.parametrize(
    "setting",
    [
        "RESET (autovacuum_vacuum_scale_factor)",
        "RESET (autovacuum_vacuum_threshold)",
        "RESET (autovacuum_vacuum_insert_scale_factor)",
        "RESET (autovacuum_vacuum_insert_threshold)",
        "SET (autovacuum_vacuum_scale_factor = 0.2)",
        "SET (autovacuum_enabled = off)",
    ],
)
async def test_the_fix_for_one_wrong_setting_mends_it(
    setting: str, engine: AsyncEngine, table: Table, sync_engine: Engine
) -> None:
    run(outbox_autovacuum_ddl(table.name), sync_engine)
    run(f"ALTER TABLE outbox {setting}", sync_engine)
    [difference] = await find_differences(engine, table, check_autovacuum=True)
    run(difference.fix, sync_engine)
    await validate_schema(engine, table, check_autovacuum=True)


async def test_the_fix_keeps_a_threshold_of_the_users(engine: AsyncEngine, table: Table, sync_engine: Engine) -> None:
    run(outbox_autovacuum_ddl(table.name, vacuum_threshold=77), sync_engine)
    run("ALTER TABLE outbox RESET (autovacuum_vacuum_scale_factor)", sync_engine)
    [difference] = await find_differences(engine, table, check_autovacuum=True)
    assert "autovacuum_vacuum_threshold = 77," in difference.fix


@each(
    ("options", "message"),
    [
        ({"table_name": ""}, "table_name '' is not a name"),
        ({"table_name": "a\x00b"}, "contains NUL"),
        ({"table_name": "é" * 32}, "1 to 63 bytes"),
        ({"table_name": make_outbox_table(MetaData())}, "pass the name itself, such as table.name"),
        ({"schema": ""}, "schema '' is not a name"),
        ({"vacuum_threshold": -1}, "vacuum_threshold must be a whole number from 0 to 2147483647, not -1"),
        ({"vacuum_threshold": True}, "vacuum_threshold must be a whole number"),
        ({"vacuum_threshold": None}, "vacuum_threshold must be a whole number"),
        ({"insert_threshold": 2**31}, "insert_threshold must be a whole number"),
        ({"insert_threshold": 1.5}, "insert_threshold must be a whole number"),
        ({"vacuum_cost_delay": 101}, "vacuum_cost_delay must be a number of milliseconds from 0 to 100"),
        ({"vacuum_cost_delay": float("nan")}, "not nan"),
        ({"vacuum_cost_delay": "2ms"}, "not '2ms'"),
        ({"vacuum_cost_limit": 0}, "vacuum_cost_limit must be a whole number from 1 to 10000, not 0"),
    ],
)
def test_values_that_postgresql_would_refuse_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        outbox_autovacuum_ddl(**options)


def test_the_rollback_refuses_what_is_no_name() -> None:
    with pytest.raises(InvalidOption, match="table_name '' is not a name"):
        outbox_autovacuum_rollback_ddl("")

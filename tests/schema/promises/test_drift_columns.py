"""Drift of columns: each kind is reported as what it is, and its fix repairs it on a table with rows."""

import pytest
from sqlalchemy import Engine, MetaData, Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.schema import find_differences, make_dlq_table, make_outbox_table
from tests.cases import case
from tests.schema.conftest import Execute, Repair, Since

OUTBOX = make_outbox_table(MetaData())
DEAD = make_dlq_table(MetaData())

TYPES = [
    ("ALTER TABLE {t} ALTER queue TYPE text", "queue", "text", "varchar(255)"),
    ("ALTER TABLE {t} ALTER timer_id TYPE varchar(64)", "timer_id", "character varying(64)", "varchar(255)"),
    ("ALTER TABLE {t} ALTER headers TYPE json", "headers", "json", "jsonb"),
    ("ALTER TABLE {t} ALTER headers TYPE text", "headers", "text", "jsonb"),
    ("ALTER TABLE {t} ALTER payload TYPE text USING convert_from(payload, 'UTF8')", "payload", "text", "bytea"),
    ("ALTER TABLE {t} ALTER payload TYPE jsonb USING '1'", "payload", "jsonb", "bytea"),
    ("ALTER TABLE {t} ALTER priority TYPE integer", "priority", "integer", "smallint"),
    (
        "ALTER TABLE {t} ALTER first_attempt_at TYPE timestamp",
        "first_attempt_at",
        "timestamp without time zone",
        "timestamp with time zone",
    ),
    (
        "ALTER TABLE {t} ALTER message_id DROP DEFAULT, ALTER message_id TYPE text,"
        " ALTER message_id SET DEFAULT gen_random_uuid()",
        "message_id",
        "text",
        "uuid",
    ),
]


async def test_a_missing_column(engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair) -> None:
    for column in [column.name for column in OUTBOX.columns]:
        with case(column):
            execute(f"ALTER TABLE {{t}} DROP COLUMN {column}")
            differences = await find_differences(engine, outbox)
            found = [(item.where, item.problem) for item in differences]
            assert (f'"Drift S".outbox.{column}', "the column is missing") in found
            repair(differences)
            assert await find_differences(engine, outbox) == []


async def test_a_missing_column_of_the_dead_letters(
    engine: AsyncEngine, outbox: Table, dead: Table, execute: Execute, repair: Repair
) -> None:
    for column in [column.name for column in DEAD.columns]:
        with case(column):
            execute(f"ALTER TABLE {{d}} DROP COLUMN {column}")
            differences = await find_differences(engine, outbox, dead)
            found = [(item.where, item.problem) for item in differences]
            assert (f'"Drift S".outbox_dlq.{column}', "the column is missing") in found
            repair(differences)
            assert await find_differences(engine, outbox, dead) == []


async def test_a_column_of_another_type(engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair) -> None:
    for statement, column, found, wanted in TYPES:
        with case(statement):
            execute(statement)
            [difference] = await find_differences(engine, outbox)
            assert difference.where == f'"Drift S".outbox.{column}'
            assert difference.problem == f"the type is {found}, and has to be {wanted}"
            repair([difference])
            assert await find_differences(engine, outbox) == []


async def test_a_string_that_is_too_long_for_the_type_is_not_cut_by_the_fix(
    engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair
) -> None:
    execute("ALTER TABLE {t} ALTER queue TYPE text", "UPDATE {t} SET queue = repeat('q', 256)")
    differences = await find_differences(engine, outbox)
    with pytest.raises(DBAPIError, match="value too long"):
        repair(differences)


async def test_a_payload_kept_as_text_keeps_its_backslashes(
    engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair, sync_engine: Engine
) -> None:
    execute("ALTER TABLE {t} ALTER payload TYPE text USING ''", r"""UPDATE {t} SET payload = '"a\nb"'""")
    repair(await find_differences(engine, outbox))
    with sync_engine.connect() as connection:
        assert connection.scalar(outbox.select().with_only_columns(outbox.c.payload)) == rb'"a\nb"'


async def test_a_dropped_default(engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair) -> None:
    for column in (column.name for column in OUTBOX.columns if column.server_default is not None):
        with case(column):
            execute(f"ALTER TABLE {{t}} ALTER {column} DROP DEFAULT")
            [difference] = await find_differences(engine, outbox)
            assert difference.where == f'"Drift S".outbox.{column}'
            assert difference.problem == "it has no default: publishing would fail"
            repair([difference])
            assert await find_differences(engine, outbox) == []


async def test_a_dropped_default_of_the_dead_letters(
    engine: AsyncEngine, outbox: Table, dead: Table, execute: Execute, repair: Repair
) -> None:
    for column in (column.name for column in DEAD.columns if column.server_default is not None):
        with case(column):
            execute(f"ALTER TABLE {{d}} ALTER {column} DROP DEFAULT")
            differences = await find_differences(engine, outbox, dead)
            assert [item.where for item in differences] == [f'"Drift S".outbox_dlq.{column}']
            repair(differences)
            assert await find_differences(engine, outbox, dead) == []


@pytest.mark.parametrize(
    ("column", "default", "problem"),
    [
        ("priority", "5", "the default is 5, and has to be 0"),
        ("next_attempt_at", "clock_timestamp()", "the default is clock_timestamp(), and has to be now()"),
        ("acquired_at", "now()", "it has the default now(), and has to have none"),
        ("timer_id", "''", "it has the default ''::character varying, and has to have none"),
    ],
)
async def test_another_default(
    column: str,
    default: str,
    problem: str,
    engine: AsyncEngine,
    outbox: Table,
    execute: Execute,
    repair: Repair,
) -> None:
    execute(f"ALTER TABLE {{t}} ALTER {column} SET DEFAULT {default}")
    differences = await find_differences(engine, outbox)
    assert [(item.where, item.problem) for item in differences] == [(f'"Drift S".outbox.{column}', problem)]
    repair(differences)
    assert await find_differences(engine, outbox) == []


@pytest.mark.parametrize("kind", ["STORED", "VIRTUAL"])
async def test_a_generated_column(
    kind: str, engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair, since: Since
) -> None:
    since(18 if kind == "VIRTUAL" else 12)
    execute(
        "ALTER TABLE {t} DROP COLUMN headers",
        f"ALTER TABLE {{t}} ADD COLUMN headers jsonb GENERATED ALWAYS AS ('null') {kind}",
    )
    [difference] = await find_differences(engine, outbox)
    assert difference.problem == "it is a generated column: publishing would fail"
    repair([difference])
    assert await find_differences(engine, outbox) == []


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(["ALTER TABLE {t} ALTER id DROP DEFAULT"], id="its sequence is still there"),
        pytest.param(["DROP SEQUENCE {s}.outbox_id_seq CASCADE"], id="its sequence is gone"),
        pytest.param(
            ["ALTER TABLE {t} ALTER id DROP DEFAULT", "ALTER SEQUENCE {s}.outbox_id_seq CACHE 9 OWNED BY NONE"],
            id="its sequence belongs to nobody",
        ),
        pytest.param(["ALTER TABLE {t} ALTER id SET DEFAULT 7"], id="it is always the same"),
    ],
)
async def test_an_id_that_nothing_numbers(
    statements: list[str],
    engine: AsyncEngine,
    outbox: Table,
    execute: Execute,
    repair: Repair,
    sync_engine: Engine,
) -> None:
    execute("UPDATE {t} SET id = 1000", *statements)
    [difference] = await find_differences(engine, outbox)
    assert difference.problem == "nothing numbers it: publishing would fail"
    repair([difference])
    assert await find_differences(engine, outbox) == []
    with sync_engine.begin() as connection:
        added = connection.execute(outbox.insert().values(queue="orders", payload=b"2").returning(outbox.c.id))
        assert added.scalar_one() == 1001


async def test_ids_that_were_in_use_do_not_come_back(
    engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair, sync_engine: Engine
) -> None:
    execute("SELECT setval('{s}.outbox_id_seq', 500)", "ALTER TABLE {t} ALTER id DROP DEFAULT")
    repair(await find_differences(engine, outbox))
    with sync_engine.begin() as connection:
        added = connection.execute(outbox.insert().values(queue="orders", payload=b"2").returning(outbox.c.id))
        assert added.scalar_one() > 500


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER SEQUENCE {s}.outbox_id_seq AS integer",
        "ALTER SEQUENCE {s}.outbox_id_seq CACHE 20",
        "ALTER SEQUENCE {s}.outbox_id_seq CYCLE",
        "ALTER SEQUENCE {s}.outbox_id_seq INCREMENT BY -1 MINVALUE -100",
        "ALTER TABLE {t} ALTER id DROP DEFAULT, ALTER id ADD GENERATED BY DEFAULT AS IDENTITY (CACHE 20)",
    ],
)
async def test_a_sequence_that_is_unfit_for_ids(
    statement: str, engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair
) -> None:
    execute(statement)
    [difference] = await find_differences(engine, outbox)
    assert difference.where == '"Drift S".outbox.id'
    assert "runs out too early, or does not number messages in their order" in difference.problem
    repair([difference])
    assert await find_differences(engine, outbox) == []


async def test_an_id_that_takes_no_value(engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair) -> None:
    execute("ALTER TABLE {t} ALTER id DROP DEFAULT, ALTER id ADD GENERATED ALWAYS AS IDENTITY")
    [difference] = await find_differences(engine, outbox)
    assert difference.problem.startswith("it is GENERATED ALWAYS: what comes back under its own number")
    repair([difference])
    assert await find_differences(engine, outbox) == []


async def test_an_id_whose_sequence_is_nobodys(
    engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair
) -> None:
    execute("ALTER SEQUENCE {s}.outbox_id_seq OWNED BY NONE")
    [difference] = await find_differences(engine, outbox)
    assert difference.problem.startswith('its sequence "Drift S".outbox_id_seq does not belong to it')
    repair([difference])
    assert await find_differences(engine, outbox) == []


async def test_an_integer_id(engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair) -> None:
    execute("ALTER TABLE {t} ALTER id TYPE integer", "ALTER SEQUENCE {s}.outbox_id_seq AS integer")
    differences = await find_differences(engine, outbox)
    assert differences[0].problem == "the type is integer, and has to be bigint"
    repair(differences)
    assert await find_differences(engine, outbox) == []


@pytest.mark.parametrize("column", ["queue", "payload"])
async def test_a_column_that_allows_null(
    column: str, engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair
) -> None:
    execute(f"ALTER TABLE {{t}} ALTER {column} DROP NOT NULL")
    [difference] = await find_differences(engine, outbox)
    assert (difference.where, difference.problem) == (f'"Drift S".outbox.{column}', "it allows NULL")
    repair([difference])
    assert await find_differences(engine, outbox) == []


async def test_a_column_that_allows_null_and_has_one_gets_its_default(
    engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair
) -> None:
    execute("ALTER TABLE {t} ALTER next_attempt_at DROP NOT NULL", "UPDATE {t} SET next_attempt_at = NULL")
    repair(await find_differences(engine, outbox))
    assert await find_differences(engine, outbox) == []


async def test_a_column_that_forbids_null(engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair) -> None:
    execute("UPDATE {t} SET key = ''", "ALTER TABLE {t} ALTER key SET NOT NULL")
    [difference] = await find_differences(engine, outbox)
    assert difference.where == '"Drift S".outbox.key'
    assert difference.problem == "it is NOT NULL: publishing would fail"
    repair([difference])
    assert await find_differences(engine, outbox) == []


async def test_a_column_of_the_users_that_has_to_have_a_value(
    engine: AsyncEngine, outbox: Table, execute: Execute, repair: Repair
) -> None:
    execute(
        "ALTER TABLE {t} ADD COLUMN tenant text NOT NULL DEFAULT 'none'",
        "ALTER TABLE {t} ALTER tenant DROP DEFAULT",
    )
    [difference] = await find_differences(engine, outbox)
    assert difference.where == '"Drift S".outbox.tenant'
    assert difference.problem.startswith("a column of your own is NOT NULL and has no default")
    repair([difference])
    assert await find_differences(engine, outbox) == []

"""The check against a live database: what it lets pass, how it is called, and what it says.

Kinds of drift, one by one, are in `promises/test_drift.py`.
"""

import asyncio

import pytest
from sqlalchemy import MetaData, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.errors import InvalidOption, SchemaMismatch
from faststream_outbox.schema import find_differences, make_outbox_table, validate_schema
from tests.waiting import eventually

from .conftest import Live


async def test_clean_tables_pass(driver_engine: AsyncEngine, table: Table, dlq_table: Table, live: Live) -> None:
    for tables in ((live.outbox, live.dead), (table, dlq_table)):
        await validate_schema(driver_engine, *tables)


async def test_drift_is_seen_with_either_driver(driver_engine: AsyncEngine, live: Live) -> None:
    live.execute("ALTER TABLE {t} DROP COLUMN headers")
    [difference] = await find_differences(driver_engine, live.outbox)
    assert difference.where == '"Drift S".outbox.headers'


async def test_a_table_without_a_schema_is_looked_up_in_the_search_path(live: Live) -> None:
    unqualified = make_outbox_table(MetaData())
    async with live.engine.connect() as connection:
        await connection.execute(text('SET search_path = "Drift S"'))
        assert await find_differences(connection, unqualified) == []
        await connection.rollback()


async def test_the_schema_translate_map_is_honoured(live: Live) -> None:
    elsewhere = make_outbox_table(MetaData(schema="per_tenant"))
    tenant = live.engine.execution_options(schema_translate_map={"per_tenant": "Drift S"})
    assert await find_differences(tenant, elsewhere) == []


async def test_a_connection_is_left_in_its_transaction_and_sees_what_that_did(
    engine: AsyncEngine, metadata: MetaData
) -> None:
    table = make_outbox_table(metadata)
    async with engine.connect() as connection:
        await connection.run_sync(metadata.create_all)
        await validate_schema(connection, table)
        assert connection.in_transaction()
        await connection.rollback()


async def test_a_connection_outside_a_transaction_is_left_outside(live: Live) -> None:
    async with live.engine.connect() as connection:
        await validate_schema(connection, live.outbox)
        assert not connection.in_transaction()


async def test_anything_but_an_engine_or_a_connection_is_refused(live: Live) -> None:
    with pytest.raises(InvalidOption, match="AsyncEngine or an AsyncConnection, not with Engine"):
        await validate_schema(live.builder, live.outbox)  # type: ignore[arg-type]


async def test_the_dead_letters_are_not_checked_unless_given(live: Live) -> None:
    live.execute("DROP TABLE {d}")
    assert await live.differences() == []
    [difference] = await live.differences(dead=True)
    assert difference.where == '"Drift S".outbox_dlq'


async def test_one_error_lists_every_difference(live: Live) -> None:
    live.execute(
        "ALTER TABLE {t} ALTER next_attempt_at DROP DEFAULT",
        "ALTER TABLE {t} RESET (fillfactor)",
        "ALTER TABLE {d} DROP COLUMN traceback",
        "CREATE INDEX mine ON {t} (acquired_at)",
    )
    with pytest.raises(SchemaMismatch) as caught:
        await validate_schema(live.engine, live.outbox, live.dead)
    assert str(caught.value).splitlines() == [
        "The database is not as this version needs it (4 differences). Run this; what is left to you is said in words:",
        "BEGIN;",
        '-- "Drift S".outbox.next_attempt_at: it has no default: publishing would fail',
        'ALTER TABLE "Drift S".outbox ALTER COLUMN next_attempt_at SET DEFAULT now();',
        '-- "Drift S".outbox: fillfactor is 100, and has to be 45: claims find no room on their page',
        'ALTER TABLE "Drift S".outbox SET (fillfactor = 45);',
        '-- "Drift S".outbox_dlq.traceback: the column is missing',
        'ALTER TABLE "Drift S".outbox_dlq ADD COLUMN traceback text;',
        "COMMIT;",
        "-- These cannot run inside a transaction, because others go on writing meanwhile:",
        '-- "Drift S".outbox index mine: it mentions acquired_at: every claim has to write to all indexes of the row',
        'DROP INDEX CONCURRENTLY IF EXISTS "Drift S".mine;',
    ]


async def test_the_text_of_the_error_mends_when_pasted(live: Live) -> None:
    live.execute(
        "DROP INDEX {s}.outbox_claim_idx",
        "ALTER TABLE {t} DROP COLUMN message_id, DROP CONSTRAINT outbox_lease_ck",
        "ALTER TABLE {d} DROP COLUMN message_id",
    )
    with pytest.raises(SchemaMismatch) as caught:
        await validate_schema(live.engine, live.outbox, live.dead)
    pasted = str(caught.value).splitlines()[1:]
    live.execute(*(line for line in pasted if not line.startswith("--")))
    await validate_schema(live.engine, live.outbox, live.dead)


async def test_a_missing_schema_is_created_by_the_fix(bare: Live) -> None:
    bare.execute("DROP SCHEMA {s}")
    bare.repair(await bare.differences(dead=True))
    assert await bare.differences(dead=True) == []


async def test_the_fix_creates_what_create_all_creates(live: Live) -> None:
    query = (
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'Drift S'"
        " UNION ALL SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint"
        "  WHERE connamespace = CAST('\"Drift S\"' AS regnamespace)"
        " UNION ALL SELECT table_name || '.' || column_name || data_type || is_nullable"
        "  || coalesce(column_default, '') FROM information_schema.columns WHERE table_schema = 'Drift S'"
    )
    by_create_all = sorted(live.answers(query))
    live.execute("DROP TABLE {t}", "DROP TABLE {d}")
    differences = await live.differences(dead=True)
    assert [item.problem for item in differences] == ["the table does not exist"] * 2
    live.repair(differences)
    assert sorted(live.answers(query)) == by_create_all


async def test_a_reflected_table_is_checked_in_full(live: Live) -> None:
    live.execute("ALTER TABLE {t} DROP COLUMN key", "ALTER TABLE {t} ALTER created_at DROP DEFAULT")
    reflected = Table("outbox", MetaData(), schema="Drift S", autoload_with=live.builder)
    where = {item.where for item in await find_differences(live.engine, reflected)}
    assert {'"Drift S".outbox.key', '"Drift S".outbox.created_at'} <= where


async def test_the_naming_convention_names_what_the_fix_creates(live: Live) -> None:
    live.execute("ALTER TABLE {t} DROP CONSTRAINT outbox_lease_ck, DROP CONSTRAINT outbox_pkey")
    convention = {"ck": "check_%(constraint_name)s", "pk": "key_of_%(table_name)s"}
    named = make_outbox_table(MetaData(schema="Drift S", naming_convention=convention))
    fixes = "\n".join(item.fix for item in await find_differences(live.engine, named))
    assert "ADD CONSTRAINT key_of_outbox PRIMARY KEY (id);" in fixes
    assert "ADD CONSTRAINT check_outbox_lease_ck CHECK (" in fixes


async def test_an_index_that_is_being_rebuilt_is_not_reported(live: Live) -> None:
    async def rebuild() -> None:
        async with live.engine.connect() as rebuilder:
            await rebuilder.execution_options(isolation_level="AUTOCOMMIT")
            await rebuilder.execute(text('REINDEX INDEX CONCURRENTLY "Drift S".outbox_claim_idx'))

    async def half_built() -> bool:
        query = text("SELECT EXISTS (SELECT FROM pg_index WHERE NOT indisvalid)")
        async with live.engine.connect() as observer:
            return bool(await observer.scalar(query))

    async with live.engine.connect() as publisher:
        await publisher.execute(live.outbox.insert().values(queue="orders", payload=b"2"))
        rebuilding = asyncio.create_task(rebuild())
        await eventually(half_built)
        differences = await live.differences(dead=True)
        await publisher.rollback()
    await rebuilding
    assert differences == []


async def test_it_only_reads(live: Live) -> None:
    async with live.engine.connect() as connection:
        await connection.execute(text("SET TRANSACTION READ ONLY"))
        await validate_schema(connection, live.outbox, live.dead, check_autovacuum=False)


async def test_it_needs_no_rights_on_the_tables_and_says_on_request_which_are_missing(live: Live) -> None:
    role = f"outbox_reader_{live.engine.url.database}"
    live.execute(
        f"DROP ROLE IF EXISTS {role}",
        f"CREATE ROLE {role}",
        f"GRANT USAGE ON SCHEMA {{s}} TO {role}",
        f"GRANT SELECT, UPDATE (acquired_token) ON {{t}} TO {role}",
    )
    try:
        async with live.engine.begin() as connection:
            await connection.execute(text(f"SET LOCAL ROLE {role}"))
            await validate_schema(connection, live.outbox, live.dead)
            differences = await find_differences(connection, live.outbox, live.dead, check_rights=True)
    finally:
        live.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    assert [(item.where, item.fix) for item in differences] == [('"Drift S".outbox', ""), ('"Drift S".outbox_dlq', "")]
    assert f'GRANT DELETE ON "Drift S".outbox TO {role}' in differences[0].problem
    assert f'GRANT INSERT ON "Drift S".outbox_dlq TO {role}' in differences[1].problem


async def test_tables_of_the_peer_are_brought_over_with_their_rows(bare: Live) -> None:
    bare.execute(
        "CREATE TABLE {t} (id bigserial PRIMARY KEY, queue varchar(255) NOT NULL, payload bytea NOT NULL,"
        " headers jsonb, attempts_count bigint NOT NULL DEFAULT 0, deliveries_count bigint NOT NULL DEFAULT 0,"
        " created_at timestamptz NOT NULL DEFAULT now(), next_attempt_at timestamptz NOT NULL DEFAULT now(),"
        " first_attempt_at timestamptz, last_attempt_at timestamptz, acquired_at timestamptz,"
        " acquired_token uuid, timer_id varchar(255),"
        " CONSTRAINT outbox_lease_ck CHECK ((acquired_token IS NULL) = (acquired_at IS NULL)))",
        "CREATE INDEX outbox_pending_idx ON {t} (queue, next_attempt_at, id) WHERE acquired_token IS NULL",
        "CREATE INDEX outbox_leased_idx ON {t} (queue, next_attempt_at, id) WHERE acquired_token IS NOT NULL",
        "CREATE UNIQUE INDEX outbox_timer_id_uq ON {t} (queue, timer_id) WHERE timer_id IS NOT NULL",
        "CREATE TABLE {d} (id bigserial PRIMARY KEY, original_id bigint NOT NULL, queue varchar(255) NOT NULL,"
        " payload bytea NOT NULL, headers jsonb, deliveries_count bigint NOT NULL,"
        " created_at timestamptz NOT NULL, failed_at timestamptz NOT NULL DEFAULT now(),"
        " failure_reason varchar(64) NOT NULL, last_exception varchar, timer_id varchar(255))",
        "CREATE INDEX outbox_dlq_queue_failed_idx ON {d} (queue, failed_at)",
        "INSERT INTO {t} (queue, payload) SELECT 'orders', 'x' FROM generate_series(1, 100)",
        "INSERT INTO {d} (original_id, queue, payload, deliveries_count, created_at, failure_reason)"
        " SELECT n, 'orders', 'x', 1, now(), 'rejected' FROM generate_series(1, 100) AS n",
    )
    bare.repair(await bare.differences(dead=True))
    assert await bare.differences(dead=True) == []
    for table in ("{t}", "{d}"):
        assert bare.answers(f"SELECT count(DISTINCT message_id) FROM {table}") == [100]

"""The described tables: names that fit, the user's MetaData honoured, and what PostgreSQL makes of them.

And the table of receipts, checked against the database.
"""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, MetaData, Table, inspect, text
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.schema.check import find_inbox_differences, validate_inbox_schema
from faststream_outbox.errors import InvalidOption, InvalidOptionType, SchemaMismatch
from faststream_outbox.schema import find_differences, make_dlq_table, make_inbox_table, make_outbox_table
from tests.cases import each
from tests.schema.migrations import CONVENTION

Factory = Callable[[MetaData, str], Table]

LONGEST = [
    pytest.param(make_outbox_table, "x" * 51, id="outbox"),
    pytest.param(make_outbox_table, "é" * 25 + "x", id="outbox, two bytes a letter"),
    pytest.param(make_outbox_table, "漢" * 17, id="outbox, three bytes a letter"),
    pytest.param(make_dlq_table, "x" * 46, id="dead letters"),
    pytest.param(make_dlq_table, "é" * 23, id="dead letters, two bytes a letter"),
    pytest.param(make_dlq_table, "漢" * 15 + "x", id="dead letters, three bytes a letter"),
]


@pytest.fixture
def create(sync_engine: Engine) -> Iterator[Callable[[MetaData], None]]:
    """Creates everything on a MetaData, with its schema, for one test."""
    created: list[MetaData] = []

    def run(metadata: MetaData) -> None:
        created.append(metadata)
        with sync_engine.begin() as connection:
            if metadata.schema is not None:
                connection.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{metadata.schema}"'))
            metadata.create_all(connection)

    yield run
    with sync_engine.begin() as connection:
        for metadata in created:
            metadata.drop_all(connection)
            if metadata.schema is not None:
                connection.execute(text(f'DROP SCHEMA "{metadata.schema}"'))


@each(("factory", "name"), [longest.values for longest in LONGEST])
def test_one_byte_more_than_fits_is_refused(factory: Factory, name: str) -> None:
    with pytest.raises(InvalidOption, match=r"too long: .* needs 64 bytes and PostgreSQL keeps 63"):
        factory(MetaData(), name + "x")


@pytest.mark.parametrize(("factory", "name"), LONGEST)
def test_the_longest_name_is_created_uncut(
    factory: Factory, name: str, create: Callable[[MetaData], None], sync_engine: Engine
) -> None:
    metadata = MetaData()
    table = factory(metadata, name)
    create(metadata)
    live = {index["name"] for index in inspect(sync_engine).get_indexes(name)}
    assert live == {index.name for index in table.indexes}


@each("factory", [make_outbox_table, make_dlq_table])
@each("name", ["", "a\x00b"])
def test_a_name_that_postgresql_cannot_store_is_refused(factory: Factory, name: str) -> None:
    with pytest.raises(InvalidOption, match="is empty or contains NUL"):
        factory(MetaData(), name)


@pytest.mark.parametrize(
    ("schema", "outbox", "dead"),
    [
        (None, "outbox", "outbox_dlq"),
        ("app", "outbox", "outbox_dlq"),
        ("App S", "My Out", "My Dead"),
        ("select", "order", "table"),
        ("100%", "50%(s)s", "%s"),
        ("a.b", 'quo"ted', "semi;colon"),
    ],
)
async def test_any_schema_and_name_is_created_and_passes_the_check(
    schema: str | None,
    outbox: str,
    dead: str,
    create: Callable[[MetaData], None],
    driver_engine: AsyncEngine,
) -> None:
    metadata = MetaData(schema=schema)
    table, dlq_table = make_outbox_table(metadata, outbox), make_dlq_table(metadata, dead)
    create(metadata)
    assert await find_differences(driver_engine, table, dlq_table) == []


def test_the_naming_convention_names_the_constraints(create: Callable[[MetaData], None], sync_engine: Engine) -> None:
    metadata = MetaData(naming_convention=CONVENTION)
    make_outbox_table(metadata, "events")
    create(metadata)
    inspector = inspect(sync_engine)
    assert inspector.get_pk_constraint("events")["name"] == "pk_events"
    assert [check["name"] for check in inspector.get_check_constraints("events")] == ["ck_events_lease"]


async def test_a_convention_that_makes_a_name_too_long_is_created_and_passes_the_check(
    create: Callable[[MetaData], None], engine: AsyncEngine
) -> None:
    metadata = MetaData(naming_convention=CONVENTION)
    table = make_outbox_table(metadata, "x" * 51)
    create(metadata)
    assert await find_differences(engine, table) == []


def test_a_claim_is_a_hot_update(table: Table, sync_engine: Engine) -> None:
    with sync_engine.begin() as connection:
        rows = [{"queue": "orders", "payload": b"x" * 100} for _ in range(500)]
        connection.execute(table.insert(), rows)
    with sync_engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE outbox SET acquired_at = now(), acquired_token = gen_random_uuid(),"
                " deliveries_count = deliveries_count + 1"
            )
        )
        updates = connection.execute(
            text(
                "SELECT pg_stat_get_xact_tuples_updated(c.oid), pg_stat_get_xact_tuples_hot_updated(c.oid)"
                " FROM pg_class c WHERE c.oid = 'outbox'::regclass"
            )
        ).one()
    assert tuple(updates) == (500, 500)


def test_a_row_needs_only_a_queue_and_a_payload(table: Table, sync_engine: Engine) -> None:
    with sync_engine.begin() as connection:
        connection.execute(text("INSERT INTO outbox (queue, payload) VALUES ('orders', '')"))
        row = connection.execute(table.select()).one()
    assert (row.attempts_count, row.deliveries_count, row.priority) == (0, 0, 0)
    assert row.message_id is not None
    assert row.next_attempt_at == row.created_at


BREAKS = {
    "drop index inbox_received_idx": "inbox_received_idx",
    "alter table inbox drop constraint inbox_pkey": "primary key",
    "alter table inbox drop column response": "response",
    "alter table inbox alter received_at drop default": "received_at",
}


@pytest.mark.parametrize("breaking", BREAKS)
async def test_each_difference_is_found_and_repaired_by_what_is_printed(engine: AsyncEngine, breaking: str) -> None:
    table: Table = make_inbox_table(MetaData())
    async with engine.connect() as connection:
        await connection.run_sync(table.create)
        await connection.execute(text(breaking))
        with pytest.raises(SchemaMismatch, match=BREAKS[breaking]):
            await validate_inbox_schema(connection, table)
        for difference in await find_inbox_differences(connection, table):
            # CONCURRENTLY is for who goes on writing meanwhile.
            await connection.execute(text(difference.fix.replace("CONCURRENTLY ", "")))
        assert await find_inbox_differences(connection, table) == []
        await connection.rollback()


async def test_missing_table_is_created_by_what_is_printed(engine: AsyncEngine) -> None:
    table = make_inbox_table(MetaData(), "my inbox")
    with pytest.raises(SchemaMismatch, match="CREATE TABLE"):
        await validate_inbox_schema(engine, table)


def test_names_are_checked() -> None:
    with pytest.raises(InvalidOption, match="too long"):
        make_inbox_table(MetaData(), "x" * 60)
    with pytest.raises(InvalidOptionType, match="make_inbox_table"):
        make_inbox_table("inbox")  # type: ignore[arg-type]

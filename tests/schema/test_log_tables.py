"""The log's tables on the caller's MetaData: complete by Alembic, by `create_all` and by `setup`, under any names."""

from collections.abc import Callable

import pytest
from alembic import command
from sqlalchemy import CheckConstraint, Engine, MetaData, inspect, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.schema.check import validate_log_schema
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox.errors import InvalidOption
from faststream_outbox.log import LogTables, Outbox, make_log_tables
from faststream_outbox.schema import make_dlq_table, make_outbox_table, validate_schema
from tests.cases import each
from tests.log.opened import delivered, put
from tests.schema.migrations import CONVENTION, Alembic, autogenerate, upgrade

Describe = Callable[[], LogTables]

DESCRIBED = [
    pytest.param(lambda: make_log_tables(MetaData()), id="the default schema"),
    pytest.param(lambda: make_log_tables(MetaData(schema="App S")), id="a schema of its own"),
    pytest.param(lambda: make_log_tables(MetaData(naming_convention=CONVENTION)), id="a naming convention"),
    pytest.param(lambda: make_log_tables(MetaData(), "My Log", "It's %s: {offsets}"), id="other names"),
    pytest.param(lambda: make_log_tables(MetaData(schema="App S"), "ł漢", 'so "quoted"'), id="other letters"),
    pytest.param(lambda: make_log_tables(MetaData(), "x" * 45, "y" * 54), id="the longest names"),
]


async def _works(engine: AsyncEngine, tables: LogTables) -> None:
    """A log that was not set up by the library publishes, reads and fails as one that was."""
    outbox = Outbox(engine, tables=tables)
    try:
        await put(outbox, "kafka://orders", 1, 2)
        assert await delivered(outbox, "broker") == [1, 2]
        with pytest.raises(ValueError, match="poison"):
            raise (await _failure(outbox))
        assert len(await outbox.parked.list("broken", state="retry")) == 1
    finally:
        await outbox.cleanup()


async def _failure(outbox: Outbox) -> BaseException:
    async def fail(message: object) -> None:
        raise ValueError("poison")

    ((_, error),) = (await outbox.dispatch(fail, "broken", batch_size=1)).failures
    assert error is not None
    return error


@pytest.mark.slow
@pytest.mark.parametrize("describe", DESCRIBED)
async def test_the_generated_migration_creates_everything_that_is_needed(
    describe: Describe, alembic: Alembic, empty: AsyncEngine
) -> None:
    tables = describe()
    metadata = tables.log.metadata
    alembic(autogenerate, metadata)
    alembic(upgrade, metadata)
    await _works(empty, tables)


@pytest.mark.slow
@pytest.mark.parametrize("describe", DESCRIBED)
def test_alembic_check_is_clean_after_the_migration(describe: Describe, alembic: Alembic) -> None:
    metadata = describe().log.metadata
    alembic(autogenerate, metadata)
    alembic(upgrade, metadata)
    alembic(command.check, metadata)


@pytest.mark.slow
@pytest.mark.parametrize("describe", DESCRIBED)
async def test_alembic_check_is_clean_after_setup_and_after_use(
    describe: Describe, alembic: Alembic, empty: AsyncEngine
) -> None:
    tables = describe()
    outbox = Outbox(empty, tables=tables)
    await outbox.setup()
    await outbox.cleanup()
    await _works(empty, tables)
    alembic(command.check, tables.log.metadata)


async def test_a_partitioned_log_is_clean_for_alembic(alembic: Alembic, empty: AsyncEngine) -> None:
    tables = make_log_tables(MetaData(), partitioned=True)
    alembic(autogenerate, tables.log.metadata)
    alembic(upgrade, tables.log.metadata)
    alembic(command.check, tables.log.metadata)
    outbox = Outbox(empty, tables=tables)
    await outbox.partitions(1000).ensure()
    await put(outbox, "kafka://orders", 1)
    assert await delivered(outbox, "broker") == [1]
    await outbox.cleanup()


@each("schema", [None, "app"])
def test_a_name_that_is_taken_on_the_metadata_is_refused_with_a_way_out(schema: str | None) -> None:
    metadata = MetaData(schema=schema)
    make_outbox_table(metadata)
    with pytest.raises(InvalidOption, match=r"make_log_tables\(metadata, 'outbox_log'\)"):
        make_log_tables(metadata)


@each("names", [("x" * 46,), ("é" * 23,), ("漢" * 15 + "x",), ("outbox", "x" * 55)])
def test_one_byte_more_than_fits_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidOption, match=r"too long: .* needs 64 bytes and PostgreSQL keeps 63"):
        make_log_tables(MetaData(), *names)


def test_no_name_is_cut_by_postgresql(empty_engine: Engine) -> None:
    tables = make_log_tables(MetaData(), "x" * 45, "y" * 54)
    tables.log.metadata.create_all(empty_engine)
    made = inspect(empty_engine)
    described = {index.name for table in tables.all for index in table.indexes}
    found = {index["name"] for table in tables.all for index in made.get_indexes(table.name)}
    assert found == described
    places = LogNames.of(tables).places()
    assert set(made.get_sequence_names()) == {places["sequence"]}


@each("name", ["", "a\x00b"])
def test_a_name_that_postgresql_cannot_store_is_refused(name: str) -> None:
    for names in ((name,), ("outbox", name)):
        with pytest.raises(InvalidOption, match="is empty or contains NUL"):
            make_log_tables(MetaData(), *names)


async def test_an_insert_that_forgets_the_position_fails_instead_of_breaking_the_order(engine: AsyncEngine) -> None:
    outbox = Outbox(engine)
    await outbox.setup()
    try:
        with pytest.raises(IntegrityError, match="position"):
            async with engine.begin() as connection:
                await connection.execute(
                    text(
                        "insert into outbox (uri, slot, payload, metadata, created_at, transaction_id)"
                        " values ('a', 0, '1', '{}', now(), 1)"
                    )
                )
    finally:
        await outbox.cleanup()
        async with engine.begin() as connection:
            await connection.run_sync(outbox.tables.log.metadata.drop_all)


def _of_one_metadata(engine: AsyncEngine) -> list[Outbox]:
    metadata = MetaData()
    return [Outbox(engine, tables=tables) for tables in [make_log_tables(metadata, name) for name in ("one", "other")]]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda engine: [Outbox(engine), Outbox(engine, schema="App S")], id="of two schemas"),
        pytest.param(_of_one_metadata, id="of one metadata"),
    ],
)
async def test_two_logs_know_nothing_of_each_other(
    make: Callable[[AsyncEngine], list[Outbox]], empty: AsyncEngine, empty_engine: Engine
) -> None:
    logs = make(empty)
    try:
        for log in logs:
            await log.setup()
        for number, log in enumerate(logs):
            await put(log, "kafka://orders", number)
        assert [await delivered(log) for log in logs] == [[0], [1]]
    finally:
        for log in logs:
            await log.cleanup()


CONVENTIONS = {
    "none": None,
    "SQLAlchemy's": CONVENTION,
    "Alembic's": {**CONVENTION, "ck": "ck_%(table_name)s_`%(constraint_name)s`"},
    "without the table": {"ck": "%(constraint_name)s", "pk": "%(table_name)s_primary"},
    "of columns": {"ck": "ck_%(table_name)s_%(column_0_name)s"},
    "of indexes too": {**CONVENTION, "ix": "ix_%(table_name)s_%(constraint_name)s"},
}


@pytest.mark.parametrize("named", CONVENTIONS)
async def test_no_convention_names_the_table_twice(named: str, empty: AsyncEngine, empty_engine: Engine) -> None:
    metadata = MetaData(naming_convention=CONVENTIONS[named])
    queue, dead = make_outbox_table(metadata), make_dlq_table(metadata)
    tables = make_log_tables(metadata, "events")
    metadata.create_all(empty_engine)
    made = inspect(empty_engine)
    for table in metadata.tables:
        names = [check["name"] or "" for check in made.get_check_constraints(table)]
        names += [index["name"] or "" for index in made.get_indexes(table)]
        assert [name for name in names if name.count(table) > 1 or name.count("ck") > 1] == []
    await validate_schema(empty, queue, dead)
    await validate_log_schema(empty, tables)


def test_checks_are_named_by_the_convention() -> None:
    tables = make_log_tables(MetaData(naming_convention=CONVENTION), "events")
    names = {
        str(check.name) for table in tables.all for check in table.constraints if isinstance(check, CheckConstraint)
    }
    assert names == {"ck_events_body", "ck_events_offsets_slots"}


def test_the_table_of_positions_is_named_after_the_log(engine: AsyncEngine) -> None:
    metadata = MetaData()
    logs = [make_log_tables(metadata), make_log_tables(metadata, "events"), make_log_tables(metadata, "facts", "read")]
    logs.append(Outbox(engine, "events").tables)
    assert [tables.offsets.name for tables in logs] == ["outbox_offsets", "events_offsets", "read", "events_offsets"]

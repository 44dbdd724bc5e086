"""Names of every kind, on both drivers: of tables, schemas, topics and groups; and schemas that an engine maps."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.schema import CreateSchema, DropSchema

from faststream_outbox.log import LogTables, Outbox, OutboxMessage, make_log_tables
from tests.log.opened import delivered, put

AWKWARD = [
    "a b",
    "it's",
    'say "so"',
    "100%",
    "%s",
    "%(uri)s",
    ":uri",
    "a:b::c",
    "{log}",
    "{deferred}",
    "$1",
    "ŁÓDŹ 漢",
    "\\",
    " ",
    "\n\t\x01\x7f",
    "🦊\u202e",
    "'; drop table outbox; --",
    "/*if dead*/",
    "x" * 240,
]
LONGEST = "é" * 17 + "{deferred}"
SCHEMA = "The %s 'schema': {log}"


@pytest.fixture
async def schema(driver_engine: AsyncEngine) -> AsyncIterator[str]:
    async with driver_engine.begin() as connection:
        await connection.execute(CreateSchema(SCHEMA))
    yield SCHEMA
    async with driver_engine.begin() as connection:
        await connection.execute(DropSchema(SCHEMA, cascade=True))


async def _works(engine: AsyncEngine, tables: LogTables, *names: str) -> None:
    outbox = Outbox(engine, tables=tables)
    await outbox.setup()
    await outbox.validate_schema()

    async def refuse(message: OutboxMessage) -> None:
        raise ValueError(message.uri)

    try:
        for name in names:
            await put(outbox, name, name)
            await put(outbox, f"{name}/below", name)
        for name in names:
            assert await delivered(outbox, name, name) == [name, name]
            assert len((await outbox.dispatch(refuse, f"{name} refusing", name, batch_size=1)).failures) == 1
            assert len(await outbox.parked.list(f"{name} refusing", state=None)) >= 1
            assert await outbox.lag(name)
            async with AsyncSession(engine) as session, session.begin():
                await outbox.seek(session, "earliest", name, name)
            assert await delivered(outbox, name, name) == [name, name]
    finally:
        await outbox.cleanup()


async def test_awkward_names_of_tables_schemas_topics_and_groups(driver_engine: AsyncEngine, schema: str) -> None:
    await _works(driver_engine, make_log_tables(MetaData(schema=schema), LONGEST), *AWKWARD)


async def test_a_schema_that_the_engine_maps(driver_engine: AsyncEngine, schema: str) -> None:
    mapped = driver_engine.execution_options(schema_translate_map={"tenant": schema})
    await _works(mapped, make_log_tables(MetaData(schema="tenant"), LONGEST), SCHEMA)


async def test_partitions_in_a_schema_that_the_engine_maps(driver_engine: AsyncEngine, schema: str) -> None:
    mapped = driver_engine.execution_options(schema_translate_map={"tenant": schema})
    outbox = Outbox(mapped, tables=make_log_tables(MetaData(schema="tenant"), "outbox_log", partitioned=True))
    await outbox.setup()
    try:
        assert await outbox.partitions(1000).ensure()
        await put(outbox, "a", 1)
        assert await delivered(outbox, "g") == [1]
    finally:
        await outbox.cleanup()

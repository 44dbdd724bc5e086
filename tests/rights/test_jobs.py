"""Each role of the security page does its whole job with the page's grants, and not with a right on a sequence less."""

import pytest
from sqlalchemy import URL, Engine, MetaData

from faststream_outbox import make_dlq_table, make_outbox_table
from faststream_outbox._internal.connections.cause import REFUSED, sqlstate_of
from faststream_outbox.errors import ConnectionUnusable
from faststream_outbox.log import Outbox
from faststream_outbox.schema import validate_schema
from tests.rights.grants import ROLES, Right, rights
from tests.rights.jobs import JOBS, broker_of
from tests.rights.stage import Stage

ON_SEQUENCES = [right for role in ROLES for right in rights(role) if right.on.startswith("SEQUENCE")]


async def run(stage: Stage, role: str, driver: str = "asyncpg") -> None:
    async with stage.acting(role, driver) as engine:
        await broker_of(stage, engine).validate_schema()
        await JOBS[role](stage, engine)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("role", ROLES)
async def test_role_does_its_job(stage: Stage, role: str, driver: str) -> None:
    await run(stage, role, driver)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("role", ["outbox_producer", "outbox_worker", "outbox_publisher", "outbox_consumer"])
async def test_role_finds_the_tables_by_its_search_path(
    stage: Stage, builder: Engine, database_url: URL, role: str, driver: str
) -> None:
    await run(Stage(builder, database_url, by_path=True), role, driver)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_owner_of_a_schema_sets_everything_up(stage: Stage, driver: str) -> None:
    owner = "outbox_producer"
    stage.execute(f"CREATE SCHEMA own; GRANT CREATE, USAGE ON SCHEMA own TO {owner}")
    metadata = MetaData(schema="own")
    tables = make_outbox_table(metadata), make_dlq_table(metadata)
    try:
        async with stage.acting(owner, driver) as engine:
            async with engine.begin() as connection:
                await connection.run_sync(metadata.create_all)
            await validate_schema(engine, *tables)
            async with Outbox(engine, "log", schema="own") as outbox:
                await outbox.setup()
                await outbox.setup()
                await outbox.validate_schema()
    finally:
        stage.execute("DROP SCHEMA own CASCADE")


@pytest.mark.parametrize("right", ON_SEQUENCES, ids=lambda right: f"{right.role}-{right.on}-{right.privilege}")
async def test_no_right_of_a_sequence_is_granted_in_vain(stage: Stage, right: Right) -> None:
    with stage.without(right.revoke):
        try:
            await run(stage, right.role)
        except (AssertionError, ConnectionUnusable):
            return
        except Exception as error:
            if sqlstate_of(error) == REFUSED:
                return
            raise
    pytest.fail("the job was done without it")

"""A clinic on the server of this worker, and one on a server of the file's own, whose settings may be changed."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox.testing.postgres import PostgresServer
from tests.doctor.clinic import Clinic
from tests.tables import all_existing


@pytest.fixture
async def clinic(server: PostgresServer, engine: AsyncEngine, builder: Engine) -> AsyncIterator[Clinic]:
    made = Clinic(server, engine)
    with all_existing(list(made.metadata.sorted_tables), builder):
        made.wait_until_alone()
        yield made
        await made.log.cleanup()


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """Nothing is set but what cannot be set later without a restart."""
    version = int(os.environ.get("OUTBOX_TEST_PG", "18"))
    settings = {"max_prepared_transactions": "10"}
    if version >= 17:
        settings["max_notify_queue_pages"] = "64"
    with PostgresServer.start(version=version, settings=settings) as server:
        yield server


@pytest.fixture
async def own_clinic(own_server: PostgresServer) -> AsyncIterator[Clinic]:
    engine = create_async_engine(own_server.dsn())
    made = Clinic(own_server, engine)
    builder = create_engine(own_server.dsn(driver="psycopg"), pool_pre_ping=True)
    with all_existing(list(made.metadata.sorted_tables), builder):
        made.wait_until_alone()
        yield made
        await made.log.cleanup()
    builder.dispose()
    await engine.dispose()

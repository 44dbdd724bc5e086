"""A world for all tests of a file, and connections to it that are closed after each test."""

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest_asyncio
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import make_dlq_table, make_outbox_table
from faststream_outbox.log import make_log_tables
from tests.faults.machine.world import DEAD_LETTERS, LOG, OUTBOX, World

Connection = psycopg.AsyncConnection[Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    """PostgreSQL alone, with all tables of the package."""
    async with World.standing(1, standby=False, pooler=False, nats=False) as world:
        await create_tables(world)
        yield world


async def create_tables(world: World) -> None:
    metadata = MetaData()
    make_outbox_table(metadata, OUTBOX)
    make_dlq_table(metadata, DEAD_LETTERS)
    make_log_tables(metadata, LOG)
    engine = create_async_engine(world.direct.replace("postgresql://", "postgresql+psycopg://"))
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await engine.dispose()


class Lines:
    """Connections through the world's proxy."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: list[Connection] = []

    async def connect(self, name: str = "") -> Connection:
        connection = await psycopg.AsyncConnection.connect(self._world.dsn, autocommit=True, application_name=name)
        self._open.append(connection)
        return connection

    async def close(self) -> None:
        for connection in self._open:
            await connection.close()


@pytest_asyncio.fixture(loop_scope="module")
async def lines(world: World) -> AsyncIterator[Lines]:
    lines = Lines(world)
    await world.ask("drop table if exists written")
    await world.ask("create table written (number int)")
    await world.ask("grant all on written to app")
    yield lines
    await lines.close()


async def answers(connection: Connection) -> bool:
    """Whether a connection works."""
    try:
        await connection.execute("select 1")
    except psycopg.OperationalError:
        return False
    return True

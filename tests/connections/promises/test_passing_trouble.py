"""A database's trouble that passes by itself is known as such, as drivers and SQLAlchemy really raise it."""

import asyncio

import pytest
from sqlalchemy import URL, Table, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox._internal.connections.cause import is_locked, is_transient
from tests.connections.troubles import TROUBLES, refusing


@pytest.mark.parametrize("name", TROUBLES)
async def test_it_passes(name: str, database_url: URL) -> None:
    with pytest.raises((OSError, SQLAlchemyError)) as failure:
        await TROUBLES[name](database_url)
    assert is_transient(failure.value)


async def test_lock_that_is_not_waited_for_passes(driver_engine: AsyncEngine, table: Table) -> None:
    async with driver_engine.connect() as first, driver_engine.connect() as second:
        await first.execute(text(f"lock table {table.name}"))
        with pytest.raises(DBAPIError) as failure:
            await second.execute(text(f"lock table {table.name} nowait"))
    assert (is_transient(failure.value), is_transient(failure.value.orig), is_locked(failure.value)) == (True,) * 3


async def test_socket_that_is_not_there_passes() -> None:
    url = URL.create("postgresql+asyncpg", "postgres", database="postgres", query={"host": "/nowhere"})
    with pytest.raises(FileNotFoundError) as failure:
        await create_async_engine(url, poolclass=NullPool).connect()
    assert is_transient(failure.value)


async def test_port_of_another_service_that_refuses_does_not_pass() -> None:
    with refusing() as port, pytest.raises(ConnectionRefusedError) as failure:
        await asyncio.open_connection("127.0.0.1", port)
    assert not is_transient(failure.value)

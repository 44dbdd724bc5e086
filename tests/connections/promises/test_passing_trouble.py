"""A database's trouble that passes by itself is known as such, as drivers and SQLAlchemy really raise it."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Table, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox._internal.connections.cause import is_locked, is_transient


async def test_lock_that_is_not_waited_for_passes(driver_engine: AsyncEngine, table: Table) -> None:
    async with driver_engine.connect() as first, driver_engine.connect() as second:
        await first.execute(text(f"lock table {table.name}"))
        with pytest.raises(DBAPIError) as failure:
            await second.execute(text(f"lock table {table.name} nowait"))
    assert (is_transient(failure.value), is_transient(failure.value.orig), is_locked(failure.value)) == (True,) * 3


async def test_pool_that_is_exhausted_passes(database_url: URL) -> None:
    engine = create_async_engine(database_url, pool_size=1, max_overflow=0, pool_timeout=0.01)
    async with engine.connect():
        with pytest.raises(PoolExhausted) as failure:
            await engine.connect()
    await engine.dispose()
    assert is_transient(failure.value)


@pytest.fixture
def refusing() -> Iterator[int]:
    """A port at which nobody listens, and that nobody else gets."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


async def refusal(url: URL) -> BaseException:
    """What comes of connecting."""
    engine = create_async_engine(url, poolclass=NullPool)
    with pytest.raises((OSError, DBAPIError)) as failure:
        await engine.connect()
    return failure.value


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_port_that_refuses_passes(refusing: int, driver: str) -> None:
    url = URL.create(f"postgresql+{driver}", "postgres", host="127.0.0.1", port=refusing, database="postgres")
    assert is_transient(await refusal(url))


async def test_socket_that_is_not_there_passes() -> None:
    url = URL.create("postgresql+asyncpg", "postgres", database="postgres", query={"host": "/nowhere"})
    assert is_transient(await refusal(url))


async def test_port_of_another_service_that_refuses_does_not_pass(refusing: int) -> None:
    with pytest.raises(ConnectionRefusedError) as failure:
        await asyncio.open_connection("127.0.0.1", refusing)
    assert not is_transient(failure.value)

"""The proxy does to a line what it is told, where no strike of the machine shows it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import URL

from tests.faults.proxy import Proxy
from tests.faults.trouble import ANSWERS, COMMITTED, Trouble

Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
async def connection(database_url: URL, proxy: Proxy) -> AsyncIterator[Connection]:
    far = database_url.set(drivername="postgresql", host="127.0.0.1", port=proxy.port)
    dsn = far.render_as_string(hide_password=False)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


async def test_answer_to_rollback_is_not_lost(proxy: Proxy, connection: Connection) -> None:
    with proxy.trouble(Trouble(ANSWERS, swallow_from=COMMITTED)):
        await connection.execute("begin")
        await connection.execute("rollback")
    assert proxy.lost_answers == 0


async def test_answer_that_waits_while_the_trouble_ends_is_not_lost_for_ever(
    proxy: Proxy, connection: Connection
) -> None:
    waits = asyncio.Event()

    def wait() -> float:
        waits.set()
        return 0.3

    with proxy.trouble(Trouble(ANSWERS, swallow=True, delay=wait)):
        asking = asyncio.create_task(connection.execute("select 1"))
        await waits.wait()
    async with asyncio.timeout(10):
        assert await (await asking).fetchone() == (1,)


def test_pieces_wait_for_their_delay_and_for_their_size() -> None:
    assert Trouble(delay=lambda: 0.2).pause(1000) == 0.2
    assert Trouble(rate=500).pause(1000) == 2.0
    assert Trouble().pause(1000) == 0.0

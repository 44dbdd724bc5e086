"""Messages written by a plain INSERT, as other languages do: only a queue and a payload are needed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox.queue import DONE, Claim, OutboxClient, Outcome, Worker
from faststream_outbox.testing.postgres import PostgresAddress
from tests.publish.ways import plain

LIMIT = 10.0


@asynccontextmanager
async def working(engine: AsyncEngine, table: Table, **options: Any) -> AsyncIterator["asyncio.Queue[Claim]"]:
    """A worker of the queue `orders`, and what it handles."""
    handled: asyncio.Queue[Claim] = asyncio.Queue()

    async def handle(claim: Claim) -> Outcome:
        handled.put_nowait(claim)
        return DONE

    worker = Worker(engine, table, "orders", handle, client=OutboxClient(engine, table), **options)
    await worker.start()
    try:
        yield handled
    finally:
        await worker.stop()


async def test_insert_of_queue_and_payload_is_handled(
    driver_engine: AsyncEngine, table: Table, database_url: URL
) -> None:
    async with working(driver_engine, table) as handled:
        with psycopg.connect(plain(database_url)) as connection:
            connection.execute("INSERT INTO outbox (queue, payload) VALUES ('orders', 'one'), ('orders', 'two')")
        claims = [await asyncio.wait_for(handled.get(), LIMIT) for _ in range(2)]
    assert [claim.payload for claim in claims] == [b"one", b"two"]
    assert all(isinstance(claim.message_id, UUID) for claim in claims)
    assert claims[0].message_id != claims[1].message_id


async def test_insert_by_psql_is_handled(
    engine: AsyncEngine, table: Table, server: PostgresAddress, database_url: URL
) -> None:
    sql = (
        "INSERT INTO outbox (queue, payload, headers, key, priority)"
        """ VALUES ('orders', convert_to('{"id": 7}', 'UTF8'), '{"content-type": "application/json"}', 'k', 3)"""
    )
    async with working(engine, table) as handled:
        server.run("psql", "-v", "ON_ERROR_STOP=1", "-d", str(database_url.database), "-c", sql)
        claim = await asyncio.wait_for(handled.get(), LIMIT)
    assert (claim.payload, claim.key, claim.priority) == (b'{"id": 7}', "k", 3)
    assert claim.headers == {"content-type": "application/json"}


@pytest.mark.parametrize("due", ["-infinity", "4713-01-01 BC", "0001-01-01 00:00:00Z", "0001-01-01 00:00:00-12"])
async def test_row_that_is_due_since_ever_is_handled_and_holds_up_nothing(
    due: str, driver_engine: AsyncEngine, table: Table, database_url: URL
) -> None:
    async with working(driver_engine, table, max_workers=5) as handled:
        with psycopg.connect(plain(database_url)) as connection:
            insert = "insert into outbox (queue, payload, next_attempt_at) values ('orders', %s, %s)"
            connection.execute(insert, ["old", due])
            connection.execute(insert, ["new", "now"])
        payloads = {(await asyncio.wait_for(handled.get(), LIMIT)).payload for _ in range(2)}
    assert payloads == {b"old", b"new"}


@pytest.mark.parametrize("headers", ["null", "[]", "5", '"text"', "{}"])
async def test_row_whose_headers_are_no_object_is_handled(
    headers: str, engine: AsyncEngine, table: Table, database_url: URL
) -> None:
    async with working(engine, table) as handled:
        with psycopg.connect(plain(database_url)) as connection:
            connection.execute("insert into outbox (queue, payload, headers) values ('orders', '', %s)", [headers])
        claim = await asyncio.wait_for(handled.get(), LIMIT)
    assert claim.headers == {}

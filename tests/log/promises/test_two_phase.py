"""Prepared transactions: a publisher's keeps its place until it is decided, a stranger's stalls nobody."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.testing.postgres import PostgresServer
from tests.log.opened import ask, delivered, opened, put

pytestmark = pytest.mark.slow

URI = "kafka://orders"


@pytest.fixture(scope="module")
def preparing() -> Iterator[PostgresServer]:
    """A server that allows prepared transactions."""
    version = int(os.environ.get("OUTBOX_TEST_PG", "18"))
    settings = {"fsync": "off", "max_prepared_transactions": "5"}
    with PostgresServer.start(version=version, settings=settings) as server:
        yield server


@pytest.fixture
async def outbox(preparing: PostgresServer) -> AsyncIterator[Outbox]:
    engine = create_async_engine(preparing.dsn())
    async with opened(engine) as outbox:
        yield outbox
    await engine.dispose()


async def _decide(engine: AsyncEngine, verdict: str, name: str) -> None:
    async with engine.connect() as connection:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        await connection.execute(text(f"{verdict} prepared '{name}'"))


async def _prepare(outbox: Outbox) -> None:
    async with outbox.engine.connect() as publisher:
        await outbox.publish(publisher, OutboxMessage(URI, "prepared"))
        await publisher.execute(text("prepare transaction 'published'"))


@pytest.mark.parametrize("owners", [False, True], ids=["", "although owners are looked for among the locks"])
async def test_messages_of_a_prepared_transaction_come_when_it_is_committed(outbox: Outbox, owners: bool) -> None:
    await _prepare(outbox)
    for number in range(5):
        await put(outbox, URI, number)
        await outbox.client.sequencer.tick(owners=owners)
        assert await delivered(outbox, "broker") == [number]
    await _decide(outbox.engine, "commit", "published")
    assert await delivered(outbox, "broker") == ["prepared"]


async def test_a_prepared_transaction_of_a_stranger_in_another_database_stalls_nobody(
    preparing: PostgresServer, outbox: Outbox
) -> None:
    preparing.create_database("elsewhere")
    elsewhere = create_async_engine(preparing.dsn("elsewhere"))
    async with elsewhere.connect() as stranger:
        await stranger.execute(text("create table stranger (n int)"))
        await stranger.execute(text("prepare transaction 'strange'"))
    await put(outbox, URI, 1)
    assert await delivered(outbox, "one") == [1]
    assert await delivered(outbox, "other") == [1]
    await _decide(elsewhere, "rollback", "strange")
    await elsewhere.dispose()


async def test_a_prepared_transaction_that_is_rolled_back_leaves_no_gap(outbox: Outbox) -> None:
    await _prepare(outbox)
    await put(outbox, URI, 1)
    assert await delivered(outbox, "broker") == [1]
    await _decide(outbox.engine, "rollback", "published")
    for number in range(2):
        await put(outbox, URI, number)
        assert await delivered(outbox, "broker") == [number]
    assert await ask(outbox.engine, "select from outbox_gaps") == []

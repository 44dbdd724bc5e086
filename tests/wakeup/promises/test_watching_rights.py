"""A role that may not read the id sequence: it is said once, with the remedy, and polling fills in."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import URL, Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox._internal.events.types import StatementFailed
from faststream_outbox.queue import DONE, Claim, Done, OutboxClient, Worker
from tests.waiting import eventually


@pytest.fixture
async def restricted(engine: AsyncEngine, table: Table, database_url: URL) -> AsyncIterator[AsyncEngine]:
    role = f"restricted_{database_url.database}"
    async with engine.begin() as connection:
        await connection.execute(text(f"create role {role}"))
        await connection.execute(text(f"grant select, insert, update, delete on outbox to {role}"))
    restricted = create_async_engine(database_url, connect_args={"server_settings": {"role": role}})
    yield restricted
    await restricted.dispose()
    async with engine.begin() as connection:
        await connection.execute(text(f"drop owned by {role}"))
        await connection.execute(text(f"drop role {role}"))


async def test_it_is_said_with_the_grant_and_messages_are_handled(
    restricted: AsyncEngine, engine: AsyncEngine, table: Table
) -> None:
    reported: list[StatementFailed] = []
    handled: list[Any] = []

    async def handle(claim: Claim) -> Done:
        handled.append(claim.payload)
        return DONE

    client = OutboxClient(restricted, table, log=None)
    client.events.subscribe(reported.append, StatementFailed)
    options = {"min_fetch_interval": 0.05, "max_fetch_interval": 0.05}
    worker = Worker(restricted, table, "orders", handle, client=client, **options)
    await worker.start()
    await eventually(lambda: reported)
    async with engine.begin() as connection:
        await connection.execute(text("insert into outbox (queue, payload) values ('orders', 'a')"))
    await eventually(lambda: handled)
    openings = client._settle_connection.openings
    await worker.stop()
    assert ([event.role for event in reported], openings) == (["watch"], 1)
    assert "GRANT SELECT ON SEQUENCE outbox_id_seq" in str(reported[0].error)

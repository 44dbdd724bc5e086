"""A stop takes the time that it was given, although the server has fallen silent in the midst of a claim."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from sqlalchemy import URL, Table
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.queue import DONE, Claim, Done
from tests.faults.proxy import Proxy, Way, proxy_to
from tests.queue.rig import POLLING, Rig
from tests.waiting import eventually

pytestmark = pytest.mark.faults

FAR_LESS_THAN_A_STATEMENT_MAY_TAKE = 20.0


@pytest.fixture
async def rig(engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[Rig]:
    rig = Rig(engine, table, dlq_table)
    yield rig
    await rig.close()


@pytest.fixture
async def proxy(database_url: URL) -> AsyncIterator[Proxy]:
    async with proxy_to(database_url.port or 5432) as proxy:
        yield proxy


@pytest.fixture(params=["asyncpg", "psycopg"])
async def far_engine(request: pytest.FixtureRequest, database_url: URL, proxy: Proxy) -> AsyncIterator[AsyncEngine]:
    """An engine whose connections go through the proxy."""
    url = database_url.set(drivername=f"postgresql+{request.param}", host="127.0.0.1", port=proxy.port)
    engine = create_async_engine(url)
    yield engine
    await engine.dispose()


async def test_a_claim_under_way_does_not_hold_it_up(rig: Rig, far_engine: AsyncEngine, proxy: Proxy) -> None:
    async def handle(claim: Claim) -> Done:
        return DONE

    client = rig.another_client(engine=far_engine, listen=False, watch=False)
    worker = await rig.work(handle, client=client, **POLLING)
    await rig.put("a")
    await rig.witness.wait(events.Handled)
    await eventually(lambda: not worker.unsettled)
    proxy.way = Way.DEAF
    swallowed = proxy.swallowed
    await rig.put("b")
    await eventually(lambda: proxy.swallowed > swallowed, timeout=20)
    async with asyncio.timeout(FAR_LESS_THAN_A_STATEMENT_MAY_TAKE):
        await worker.stop(timeout=1.0)
    assert len(rig.witness.of(events.Started)) == 1


async def test_what_the_claim_brings_afterwards_is_given_back(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch, answered = DedicatedConnection.fetch, asyncio.Event()
    asked = asyncio.Event()

    async def late(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
        rows = await fetch(connection, statement, values)
        if statement.name == "claim" and any(row[0] is not None for row in rows):
            asked.set()
            await answered.wait()
        return rows

    async def handle(claim: Claim) -> Done:
        return DONE

    monkeypatch.setattr(DedicatedConnection, "fetch", late)
    worker = await rig.work(handle)
    await rig.work(handle, "mails")
    await rig.put("a")
    await asked.wait()
    async with asyncio.timeout(FAR_LESS_THAN_A_STATEMENT_MAY_TAKE):
        await worker.stop(timeout=0.1)
    assert await rig.leased() == 1
    answered.set()
    await rig.witness.wait(events.Released)
    row = await rig.row()
    assert (row["deliveries_count"], row["acquired_token"], rig.witness.of(events.Started)) == (0, None, [])

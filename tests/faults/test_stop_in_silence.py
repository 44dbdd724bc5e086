"""A stop takes the time that it was given, although the server has fallen silent in the midst of a claim."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.queue import DONE, Claim, Done
from tests.faults.proxy import Proxy, Way
from tests.queue.rig import POLLING, Rig
from tests.waiting import eventually

pytestmark = pytest.mark.faults

FAR_LESS_THAN_A_STATEMENT_MAY_TAKE = 20.0


async def handle(claim: Claim) -> Done:
    return DONE


async def test_a_claim_under_way_does_not_hold_it_up(rig: Rig, far_engine: AsyncEngine, proxy: Proxy) -> None:
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

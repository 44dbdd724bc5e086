"""Leases end while the machine sleeps."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.queue import clock
from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.queue import DONE, Claim, Done
from tests.queue.rig import Rig
from tests.waiting import eventually


def test_never_goes_back() -> None:
    times = [clock.now() for _ in range(1000)]
    assert times == sorted(times)


async def test_a_message_that_waited_through_a_suspend_is_not_begun(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    finish, now, fetch = asyncio.Event(), clock.now, DedicatedConnection.fetch

    async def handle(claim: Claim) -> Done:
        if claim.payload == b"slow":
            await finish.wait()
        return DONE

    async def unreachable(connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]) -> Any:
        if statement.name == "renew":
            raise ConnectionResetError
        return await fetch(connection, statement, values)

    worker = await rig.work(handle, fetch_batch_size=10, lease_ttl_seconds=600.0)
    await rig.put(*["quick"] * 50)
    await rig.witness.wait(events.Handled, count=50)
    await rig.put(*["slow"] * 8)
    await eventually(lambda: worker.waiting == 7, message="messages wait in memory")
    monkeypatch.setattr(DedicatedConnection, "fetch", unreachable)
    monkeypatch.setattr(clock, "now", lambda: now() + 3600.0)
    finish.set()
    await rig.witness.wait(events.LeaseWasLost, count=7, phase="waiting")
    assert len(rig.witness.of(events.Started)) == 51

"""The server is away while a handled batch is to be settled: it is settled when the server is back, and runs once."""

import asyncio
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.opened import Collector, reading
from tests.log.rig import LogRig

LONG = 20
"""More failures in a row than anybody counts to."""


class Refused(Exception):
    """What a server says that is there, and does not want to."""

    sqlstate = "42501"


class Away:
    """Fails the settles of one client, so many times."""

    def __init__(self, outbox: Outbox, error: Exception, times: int) -> None:
        self._fetch = outbox.client.connection.fetch
        self._error = error
        self.left = times
        outbox.client.connection.fetch = self.fetch  # type: ignore[method-assign]

    async def fetch(self, statement: Any, values: Any) -> Any:
        if statement.name == "move" and self.left > 0:
            self.left -= 1
            raise self._error
        return await self._fetch(statement, values)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faststream_outbox._internal.service.pause_after", lambda failures, chance=1.0: 0.001)


@pytest.mark.slow
async def test_handled_batch_is_settled_when_the_server_is_back(rig: LogRig) -> None:
    outbox = await rig.another()
    token = await rig.put("k", 1)
    seen = Collector()
    away = Away(outbox, ConnectionError("the server is away"), LONG)
    async with reading(outbox, seen, "g"):
        await rig.outbox.wait_until_caught_up(token, "g", timeout=20)
    assert (seen.payloads, away.left) == ([1], 0)
    assert len([event for event in rig.reported(events.StatementFailed) if event.role == "settling"]) == LONG


@pytest.mark.slow
async def test_what_the_server_refuses_is_not_sent_for_ever(rig: LogRig) -> None:
    outbox = await rig.another()
    await rig.put("k", 1)
    Away(outbox, Refused(), 10 * LONG)
    with pytest.raises(Refused):
        await asyncio.wait_for(outbox.dispatch(Collector(), "g"), 20)


async def test_reader_that_is_to_stop_does_not_wait_for_the_server_for_ever(rig: LogRig) -> None:
    outbox = await rig.another()
    await rig.put("k", 1)
    stop = asyncio.Event()

    async def handle(message: OutboxMessage) -> None:
        stop.set()

    Away(outbox, ConnectionError("the server is away"), 1_000_000)
    await asyncio.wait_for(outbox.run(handle, "g", stop_event=stop), 20)

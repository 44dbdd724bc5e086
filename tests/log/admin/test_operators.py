"""What operators ask and clean does not stand in the way of those who read, nor they in its way."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from faststream_outbox.log import Outbox
from tests.log.opened import Collector
from tests.log.rig import LogRig

QUESTIONS: dict[str, Callable[[Outbox], Awaitable[Any]]] = {
    "lag": lambda outbox: outbox.lag(),
    "lag_by_slot": lambda outbox: outbox.lag_by_slot("g"),
    "groups.list": lambda outbox: outbox.groups.list(),
    "groups.paused": lambda outbox: outbox.groups.paused(),
    "parked.list": lambda outbox: outbox.parked.list("g"),
    "clean": lambda outbox: outbox.clean(older_than=timedelta(0)),
}


@pytest.mark.parametrize("name", QUESTIONS)
async def test_question_is_answered_while_the_readers_wait_for_the_server(rig: LogRig, name: str) -> None:
    await rig.put("k", 1)
    await rig.outbox.dispatch(Collector(), "g")
    async with rig.outbox.client.connection._lock, asyncio.timeout(20):
        await QUESTIONS[name](rig.outbox)


async def test_reading_goes_on_while_an_operator_waits_for_the_server(rig: LogRig) -> None:
    collector = Collector()
    await rig.put("k", 1)
    async with rig.outbox.client.operator_connection._lock, asyncio.timeout(20):
        await rig.outbox.dispatch(collector, "g")
    assert collector.payloads == [1]

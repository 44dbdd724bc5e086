"""A cancellation that arrives while the end of a batch is being written: what was handled stays handled."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.log import Outbox, OutboxMessage
from tests.log.gate import Gate
from tests.log.opened import Collector, delivered, reading_batches
from tests.log.rig import LogRig

Way = Callable[[Outbox, Collector], Coroutine[Any, Any, object]]


def run(outbox: Outbox, collector: Collector) -> Coroutine[Any, Any, object]:
    return outbox.run(collector, "g")


def dispatch(outbox: Outbox, collector: Collector) -> Coroutine[Any, Any, object]:
    return outbox.dispatch(collector, "g")


async def iterate(outbox: Outbox, collector: Collector) -> None:
    async for message in outbox.messages("g"):
        await collector(message)


async def batches(outbox: Outbox, collector: Collector) -> None:
    async with reading_batches(outbox, collector, "g"):
        await asyncio.Event().wait()


async def cancelled_at(gate: Gate, way: Coroutine[Any, Any, object]) -> None:
    """Run until a statement stands in front of the gate, cancel, and let the statement go."""
    running = asyncio.create_task(way)
    await asyncio.wait_for(gate.reached.wait(), 30)
    running.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 30)


@pytest.mark.parametrize("way", [run, dispatch, iterate, batches])
async def test_handled_messages_do_not_come_again_after_a_cancel_while_they_are_settled(rig: LogRig, way: Way) -> None:
    await rig.put("k", 1, 2, 3)
    await rig.sequence()
    outbox = await rig.another()
    collector = Collector()
    await cancelled_at(Gate(outbox, "move"), way(outbox, collector))
    assert collector.payloads
    assert collector.payloads + await delivered(rig.outbox, "g") == [1, 2, 3]


async def test_failed_attempt_is_counted_although_its_settle_was_cancelled(rig: LogRig) -> None:
    """One message: the batch of one is a failure at its commit, and then alone."""
    await rig.put_apart("k", 1)
    outbox = await rig.another()

    async def fail_commit(message: OutboxMessage, session: AsyncSession) -> None:
        await session.rollback()
        raise ValueError(message.payload)

    await cancelled_at(Gate(outbox, "advance"), outbox.run(fail_commit, "g", transactional=True))
    assert [row["attempts"] for row in await rig.deferrals()] == [1]


async def test_stop_does_not_wait_for_ever_for_a_settle_that_is_not_answered(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faststream_outbox._internal.service.PATIENCE", 0.05)
    await rig.put_apart("k", 1)
    outbox = await rig.another()
    gate = Gate(outbox, "move")
    running = asyncio.create_task(run(outbox, Collector()))
    await asyncio.wait_for(gate.reached.wait(), 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 30)

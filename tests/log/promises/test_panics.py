"""Whatever a handler raises, also what is no Exception, is a failed attempt of its message, and the reader lives on."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import events
from faststream_outbox._internal.log.delivery import Delivery
from faststream_outbox._internal.log.options import ReadOptions
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox._internal.log.worker import LogWorker
from faststream_outbox._internal.outcomes.outcome import DONE, Outcome
from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox.log import OutboxMessage
from tests.log.opened import reading
from tests.log.rig import LogRig
from tests.waiting import eventually


class Panic(BaseException):
    """As extensions written in Rust raise it."""


@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
async def test_panic_is_a_failed_attempt_and_the_reader_lives(rig: LogRig, transactional: bool) -> None:
    outbox = await rig.another(retry_strategy=NoRetry())
    for number in (1, 2, 3):
        await rig.put(f"k{number}", number)
    seen: list[Any] = []

    async def handle(message: OutboxMessage, session: AsyncSession | None = None) -> None:
        seen.append(message.payload)
        if message.payload == 2:
            raise Panic(message.payload)

    async with reading(outbox, handle, "g", transactional=transactional):
        await eventually(lambda: 3 in seen, 10)
        await eventually(lambda: outbox.parked.list("g"), 10)
        assert outbox.client.is_healthy
    assert [(row["position"], row["state"]) for row in await rig.deferrals()] == [(2, "parked")]
    assert rig.reported(events.LoopCrashed) == []


async def test_panic_of_a_batch_fails_the_guilty_one_alone(rig: LogRig) -> None:
    outbox = await rig.another()
    for number in range(10):
        await rig.put(f"k{number}", number)
    await rig.sequence()
    sizes: list[int] = []

    async def handle(deliveries: Sequence[Delivery]) -> list[Outcome]:
        sizes.append(len(deliveries))
        if any(delivery.message.payload == 4 for delivery in deliveries):
            raise Panic
        return [DONE for _ in deliveries]

    options = ReadOptions(batch_size=10, retry_strategy=ConstantRetry(delay_seconds=0.01, max_attempts=3))
    worker = LogWorker(outbox.client, Group("g"), handle, options=options, batch=True)
    await worker.start()
    await eventually(lambda: outbox.parked.list("g"), 10)
    await worker.stop()
    assert [(row["key"], row["attempts"]) for row in await rig.deferrals()] == [("k4", 3)]
    assert max(sizes) > 1


async def test_reader_that_has_crashed_once_still_finishes_what_it_has_in_hand_when_it_stops(rig: LogRig) -> None:
    outbox = await rig.another()
    await rig.put("k", 1)
    entered, let_go, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    seen: list[Any] = []
    catch_up, is_first = outbox.client.timeline.after, True

    async def fail_once(*args: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            raise Panic
        return await catch_up(*args)

    outbox.client.timeline.after = fail_once  # type: ignore[method-assign]

    async def handle(message: OutboxMessage) -> None:
        entered.set()
        await let_go.wait()
        seen.append(message.payload)

    running = asyncio.create_task(outbox.run(handle, "g", poll_interval=0.05, stop_event=stop))
    await asyncio.wait_for(entered.wait(), 10)
    stop.set()
    for _ in range(20):
        await asyncio.sleep(0)
    let_go.set()
    await asyncio.wait_for(running, 10)
    assert len(rig.reported(events.LoopCrashed)) == 1
    assert seen == [1]

"""`dispatch`: one batch, its slots given back, whatever the handler or the caller does."""

import asyncio
from typing import Any

import pytest

from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox.log import Dispatched, OutboxMessage
from tests.log.opened import Collector, delivered, drain, refuse
from tests.log.rig import LogRig


async def owners(rig: LogRig) -> set[Any]:
    return {span["owner"] for span in await rig.spans()}


@pytest.mark.slow
async def test_nothing_to_do_is_false(driver_rig: LogRig) -> None:
    done = await driver_rig.outbox.dispatch(Collector(), "g")
    assert not done
    assert done == Dispatched()


async def test_slots_are_free_after_each_batch(rig: LogRig) -> None:
    await rig.put("k", 1)
    await rig.outbox.dispatch(Collector(), "g")
    assert await owners(rig) == {None}
    await rig.outbox.dispatch(Collector(), "g")
    assert await owners(rig) == {None}


@pytest.mark.slow
async def test_two_at_once_hand_out_each_message_once(rig: LogRig) -> None:
    other = await rig.another()
    await rig.put("k", *range(30))
    collector = Collector()

    async def slowly(message: OutboxMessage) -> None:
        await asyncio.sleep(0.001)
        await collector(message)

    while len(collector.payloads) < 30:
        await asyncio.gather(
            rig.outbox.dispatch(slowly, "g", batch_size=5),
            rig.outbox.dispatch(slowly, "g", batch_size=5),
            other.dispatch(slowly, "g", batch_size=5),
        )
    assert collector.payloads == list(range(30))


async def test_cancelled_dispatch_keeps_what_is_done_and_gives_its_slots_back(rig: LogRig) -> None:
    await rig.put("k", 1, 2, 3)
    entered = asyncio.Event()
    seen: list[Any] = []

    async def handle(message: OutboxMessage) -> None:
        if message.payload == 2:
            entered.set()
            await asyncio.Event().wait()
        seen.append(message.payload)

    running = asyncio.create_task(rig.outbox.dispatch(handle, "g"))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await owners(rig) == {None}
    assert seen == [1]
    assert await delivered(rig.outbox, "g") == [2, 3]


@pytest.mark.slow
async def test_handler_that_raises_a_cancellation_of_its_own_has_failed(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=NoRetry())
    await rig.put("k", 1)

    async def handle(message: OutboxMessage) -> None:
        raise asyncio.CancelledError

    await outbox.dispatch(handle, "g")
    assert len(await outbox.parked.list("g")) == 1


@pytest.mark.slow
async def test_retry_strategy_that_raises_parks_the_message(rig: LogRig) -> None:
    class Broken:
        def get_next_attempt_delay(self, **_: Any) -> float:
            raise ZeroDivisionError

    outbox = await rig.another(retry_strategy=Broken())
    await rig.put("k", 1)
    await rig.put("other", 2)

    async def handle(message: OutboxMessage) -> None:
        if message.payload == 1:
            raise ValueError(message.payload)

    assert (await outbox.dispatch(handle, "g")).handled == 1
    assert [parked.key for parked in await outbox.parked.list("g")] == ["k"]


@pytest.mark.slow
async def test_parked_message_is_not_handed_out_before_an_operator_says_so(rig: LogRig) -> None:
    """Two of a key are parked; the operator lets the first one run, and keys are held from now on."""
    first = await rig.another(retry_strategy=NoRetry(), on_parked="skip")
    await rig.put("k", 1, 2)
    await drain(first, refuse, "g")
    leases = await rig.another(on_parked="hold_key")
    await leases.parked.retry("g", positions=[1])
    assert await delivered(leases, "g") == [1]
    assert [parked.position for parked in await leases.parked.list("g")] == [2]


async def test_message_is_not_tried_before_it_is_due_because_another_of_its_key_is(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=3600, max_attempts=1))
    await rig.put("k", 1)
    await outbox.dispatch(refuse, "g")
    patient = await rig.another(retry_strategy=ConstantRetry(delay_seconds=3600))
    await rig.put("k", 2)
    await patient.dispatch(refuse, "g")
    await patient.parked.retry("g", positions=[1])
    assert await delivered(patient, "g") == [1]


@pytest.mark.slow
async def test_handler_may_publish_to_the_log_that_it_reads(rig: LogRig) -> None:
    await rig.put("k", 3)
    collector = Collector()

    async def handle(message: OutboxMessage) -> None:
        await collector(message)
        if message.payload:
            await rig.put("k", message.payload - 1)

    await drain(rig.outbox, handle, "g")
    assert collector.payloads == [3, 2, 1, 0]

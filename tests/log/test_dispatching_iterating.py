"""Reading message by message: what was handled is acknowledged, what was in flight comes again."""

import asyncio
from typing import Any

import pytest

from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox.log import OutboxMessage
from tests.log.opened import delivered
from tests.log.rig import LogRig
from tests.waiting import eventually


async def first(rig: LogRig, count: int, group: str = "g") -> list[Any]:
    """The next payloads of a group; the loop is left by `break`, with the last one in flight."""
    seen: list[Any] = []
    messages = rig.outbox.messages(group)
    async for message in messages:
        seen.append(message.payload)
        if len(seen) == count:
            break
    await messages.aclose()  # type: ignore[attr-defined]
    return seen


async def test_break_hands_out_again_the_one_in_hand(driver_rig: LogRig) -> None:
    await driver_rig.put("k", 1, 2, 3)
    assert await first(driver_rig, 2) == [1, 2]
    assert await first(driver_rig, 2) == [2, 3]


async def test_error_in_the_loop_hands_out_again_the_one_in_hand(rig: LogRig) -> None:
    await rig.put("k", 1, 2, 3)
    messages = rig.outbox.messages("g")

    async def read() -> None:
        async for message in messages:
            if message.payload == 2:
                raise ValueError(message.payload)

    with pytest.raises(ValueError, match="2"):
        await read()
    await messages.aclose()  # type: ignore[attr-defined]
    assert await delivered(rig.outbox, "g") == [2, 3]


async def test_cancelled_loop_hands_out_again_the_one_in_hand(rig: LogRig) -> None:
    await rig.put("k", 1, 2, 3)
    seen: list[Any] = []

    async def read() -> None:
        async for message in rig.outbox.messages("g"):
            seen.append(message.payload)
            if message.payload == 2:
                await asyncio.Event().wait()

    reading = asyncio.create_task(read())
    await eventually(lambda: seen == [1, 2])
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    async def is_free() -> bool:
        return all(span["owner"] is None for span in await rig.spans())

    await eventually(is_free)
    assert await delivered(rig.outbox, "g") == [2, 3]


async def test_loop_over_the_outbox_itself_is_over_the_group_without_a_name(rig: LogRig) -> None:
    await rig.put("k", 1, 2)
    seen: list[Any] = []
    async for message in rig.outbox:
        seen.append(message.payload)
        if len(seen) == 2:
            break
    assert seen == [1, 2]

    async def is_free() -> bool:
        return all(span["owner"] is None for span in await rig.spans(""))

    await eventually(is_free)


async def test_loop_waits_for_what_comes(rig: LogRig) -> None:
    seen: list[Any] = []

    async def read() -> None:
        async for message in rig.outbox.messages("g"):
            seen.append(message.payload)

    reading = asyncio.create_task(read())
    await rig.put("k", 1)
    await eventually(lambda: seen == [1])
    await rig.put("k", 2)
    await eventually(lambda: seen == [1, 2])
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


async def test_progress_is_written_while_the_loop_waits(rig: LogRig) -> None:
    await rig.put("k", 1, 2)
    seen: list[Any] = []

    async def read() -> None:
        async for message in rig.outbox.messages("g"):
            seen.append(message.payload)

    reading = asyncio.create_task(read())

    async def is_written() -> bool:
        return {span["position"] for span in await rig.spans()} == {2}

    await eventually(is_written)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.slow
async def test_every_message_is_handed_out_once_and_in_order_over_many_batches(rig: LogRig) -> None:
    await rig.put("k", *range(350))
    seen: list[Any] = []
    messages = rig.outbox.messages("g")
    async for message in messages:
        seen.append(message.payload)
        if len(seen) == 350:
            break
    await messages.aclose()  # type: ignore[attr-defined]
    assert seen == list(range(350))


async def settle(rig: LogRig, decide: Any, count: int = 1, **options: Any) -> list[Any]:
    """Executor out deliveries, decide on each, until so many were."""
    outbox = await rig.another(**options)
    seen: list[Any] = []
    deliveries = outbox.deliveries("g")
    async for delivery in deliveries:
        seen.append(delivery.message.payload)
        await decide(delivery)
        if len(seen) == count:
            # Asked for the next one, so that this one is settled.
            closing: asyncio.Task[Any] = asyncio.ensure_future(anext(deliveries))
            await asyncio.sleep(0.05)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            break
    await deliveries.aclose()  # type: ignore[attr-defined]
    return seen


@pytest.mark.slow
async def test_acked_delivery_does_not_come_again(rig: LogRig) -> None:
    await rig.put("k", 1)

    async def ack(delivery: Any) -> None:
        delivery.ack()

    assert await settle(rig, ack) == [1]
    assert await delivered(rig.outbox, "g") == []


@pytest.mark.slow
async def test_nacked_delivery_waits_and_its_key_with_it(rig: LogRig) -> None:
    await rig.put("k", 1, 2)
    await rig.put("other", 3)

    async def decide(delivery: Any) -> None:
        if delivery.position == 1:
            delivery.nack(3600)
        else:
            delivery.ack()

    assert await settle(rig, decide, 2) == [1, 3]
    assert [(row["position"], row["state"], row["attempts"]) for row in await rig.deferrals()] == [
        (1, "retry", 1),
        (2, "deferred", 0),
    ]


async def test_nack_that_does_not_count(rig: LogRig) -> None:
    await rig.put("k", 1)

    async def nack(delivery: Any) -> None:
        delivery.nack(3600, counts=False)

    await settle(rig, nack)
    assert [row["attempts"] for row in await rig.deferrals()] == [0]


@pytest.mark.slow
async def test_parked_delivery_is_for_an_operator(rig: LogRig) -> None:
    await rig.put("k", 1)

    async def park(delivery: Any) -> None:
        delivery.park(ValueError("for good"))

    await settle(rig, park)
    (parked,) = await rig.outbox.parked.list("g")
    assert (parked.state, parked.error_message) == ("parked", "for good")


@pytest.mark.slow
async def test_delivery_in_a_with_is_acked_or_tried_again(rig: LogRig) -> None:
    await rig.put("a", "good")
    await rig.put("b", "bad")

    async def handle(delivery: Any) -> None:
        async with delivery as message:
            if message.payload == "bad":
                raise ValueError(message.payload)

    await settle(rig, handle, 2, retry_strategy=NoRetry())
    (parked,) = await rig.outbox.parked.list("g")
    assert parked.error_message == "bad"
    assert await delivered(rig.outbox, "g") == []


@pytest.mark.slow
async def test_first_decision_counts(rig: LogRig) -> None:
    await rig.put("k", 1)

    async def both(delivery: Any) -> None:
        delivery.ack()
        delivery.park()

    await settle(rig, both)
    assert await rig.deferrals() == []


@pytest.mark.slow
async def test_delivery_without_a_decision_comes_again(rig: LogRig) -> None:
    await rig.put("k", 1, 2)

    async def nothing(delivery: Any) -> None:
        pass

    assert await settle(rig, nothing, 2) == [1, 1]


@pytest.mark.slow
async def test_nacked_delivery_comes_again_when_due_with_its_attempts(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.02))
    await rig.put("k", 1, 2)
    seen: list[tuple[Any, int]] = []
    deliveries = outbox.deliveries("g")
    async with asyncio.timeout(30):
        async for delivery in deliveries:
            seen.append((delivery.message.payload, delivery.attempts))
            if len(seen) < 3:
                delivery.nack()
            else:
                delivery.ack()
            if len(seen) == 4:
                break
    await deliveries.aclose()  # type: ignore[attr-defined]
    assert seen == [(1, 0), (1, 1), (1, 2), (2, 0)]


@pytest.mark.slow
async def test_two_loops_over_one_group_share_its_messages(rig: LogRig) -> None:
    other = await rig.another()
    seen: list[Any] = []

    async def read(messages: Any) -> None:
        async for message in messages:
            assert isinstance(message, OutboxMessage)
            seen.append(message.payload)
            await asyncio.sleep(0)

    reading = [asyncio.create_task(read(outbox.messages("g"))) for outbox in (rig.outbox, other)]

    async def is_shared() -> bool:
        return len({span["owner"] for span in await rig.spans()} - {None}) == 2

    await eventually(is_shared)
    for number in range(100):
        await rig.put(f"k{number}", number)
    await eventually(lambda: len(seen) >= 100)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    assert sorted(seen) == list(range(100))

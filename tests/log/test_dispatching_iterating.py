"""Reading message by message: what was handled is acknowledged, what was in flight comes again."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from faststream_outbox._internal.outcomes.retry import ConstantRetry, NoRetry
from faststream_outbox.log import Delivery
from tests.log.opened import delivered, iterating
from tests.log.rig import LogRig
from tests.waiting import eventually


async def first(rig: LogRig, count: int) -> list[Any]:
    """The next payloads of a group; the loop is left by `break`, with the last one in flight."""
    seen: list[Any] = []
    async with aclosing(rig.outbox.messages("g")) as messages:
        async for message in messages:
            seen.append(message.payload)
            if len(seen) == count:
                break
    return seen


async def is_free(rig: LogRig) -> bool:
    """Whether the group's slots are given back."""
    return all(span["owner"] is None for span in await rig.spans())


async def test_break_hands_out_again_the_one_in_hand(driver_rig: LogRig) -> None:
    await driver_rig.put("k", 1, 2, 3)
    assert await first(driver_rig, 2) == [1, 2]
    assert await first(driver_rig, 2) == [2, 3]


async def test_error_in_the_loop_hands_out_again_the_one_in_hand(rig: LogRig) -> None:
    await rig.put("k", 1, 2, 3)

    async def read() -> None:
        async with aclosing(rig.outbox.messages("g")) as messages:
            async for message in messages:
                if message.payload == 2:
                    raise ValueError(message.payload)

    with pytest.raises(ValueError, match="2"):
        await read()
    assert await delivered(rig.outbox, "g") == [2, 3]


async def test_cancelled_loop_hands_out_again_the_one_in_hand(rig: LogRig) -> None:
    await rig.put("k", 1, 2, 3)
    seen: list[Any] = []
    async with iterating(rig.outbox, seen, last=2):
        await eventually(lambda: seen == [1, 2])
    await eventually(lambda: is_free(rig))
    assert await delivered(rig.outbox, "g") == [2, 3]


async def test_loop_over_the_outbox_itself_is_over_the_group_without_a_name(rig: LogRig) -> None:
    await rig.put("k", 1)
    async for message in rig.outbox:
        assert message.payload == 1
        break
    assert [span["consumer_group"] for span in await rig.spans("")] == [""]


async def test_loop_waits_for_what_comes(rig: LogRig) -> None:
    seen: list[Any] = []
    async with iterating(rig.outbox, seen):
        for number in (1, 2):
            await rig.put("k", number)
            await eventually(lambda last=number: seen[-1:] == [last])
    assert seen == [1, 2]


async def test_progress_is_written_while_the_loop_waits(rig: LogRig) -> None:
    await rig.put("k", 1, 2)

    async def is_written() -> bool:
        return {span["position"] for span in await rig.spans()} == {2}

    async with iterating(rig.outbox, []):
        await eventually(is_written)


@pytest.mark.slow
async def test_every_message_is_handed_out_once_and_in_order_over_many_batches(rig: LogRig) -> None:
    await rig.put("k", *range(350))
    assert await first(rig, 350) == list(range(350))


@pytest.mark.slow
async def test_two_loops_over_one_group_share_its_messages(rig: LogRig) -> None:
    seen: list[Any] = []

    async def is_shared() -> bool:
        return len({span["owner"] for span in await rig.spans()} - {None}) == 2

    async with iterating(rig.outbox, seen), iterating(await rig.another(), seen):
        await eventually(is_shared)
        for number in range(100):
            await rig.put(f"k{number}", number)
        await eventually(lambda: len(seen) >= 100)
    assert sorted(seen) == list(range(100))


async def decide(rig: LogRig, decision: Callable[[Delivery], object], **options: Any) -> list[Any]:
    """Decide on each delivery until a last one, behind all others, is in hand; what there was to decide on."""
    await rig.put("last", "last")
    seen: list[Any] = []
    outbox = await rig.another(**options)
    async with asyncio.timeout(30), aclosing(outbox.deliveries("g")) as deliveries:
        async for delivery in deliveries:
            if delivery.message.payload == "last":
                break
            seen.append(delivery.message.payload)
            decision(delivery)
    return seen


async def test_acked_delivery_does_not_come_again(driver_rig: LogRig) -> None:
    await driver_rig.put("k", 1)
    assert await decide(driver_rig, lambda delivery: delivery.ack()) == [1]
    assert await delivered(driver_rig.outbox, "g") == ["last"]


async def test_nacked_delivery_waits_and_its_key_with_it(rig: LogRig) -> None:
    await rig.put("k", 1, 2)
    await rig.put("other", 3)

    def decision(delivery: Delivery) -> None:
        if delivery.position == 1:
            delivery.nack(3600)
        else:
            delivery.ack()

    assert await decide(rig, decision) == [1, 3]
    states = [(row["position"], row["state"], row["attempts"]) for row in await rig.deferrals()]
    assert states == [(1, "retry", 1), (2, "deferred", 0)]


async def test_nack_that_does_not_count(rig: LogRig) -> None:
    await rig.put("k", 1)
    await decide(rig, lambda delivery: delivery.nack(3600, counts=False))
    assert [row["attempts"] for row in await rig.deferrals()] == [0]


async def test_parked_delivery_is_for_an_operator(driver_rig: LogRig) -> None:
    await driver_rig.put("k", 1)
    await decide(driver_rig, lambda delivery: delivery.park(ValueError("for good")))
    (parked,) = await driver_rig.outbox.parked.list("g")
    assert (parked.state, parked.key, parked.error_message) == ("parked", "k", "for good")


async def test_first_decision_counts(rig: LogRig) -> None:
    await rig.put("k", 1)
    await decide(rig, lambda delivery: (delivery.ack(), delivery.park()))
    assert await rig.deferrals() == []


async def test_delivery_in_a_with_is_acked_or_tried_again(rig: LogRig) -> None:
    await rig.put("a", "good")
    await rig.put("b", "bad")
    await rig.put("c", "last")
    outbox = await rig.another(retry_strategy=NoRetry())
    async with aclosing(outbox.deliveries("g")) as deliveries:
        async for delivery in deliveries:
            if delivery.message.payload == "last":
                break
            async with delivery as message:
                if message.payload == "bad":
                    raise ValueError(message.payload)
    (parked,) = await outbox.parked.list("g")
    assert parked.error_message == "bad"
    assert await delivered(outbox, "g") == ["last"]


async def test_delivery_without_a_decision_comes_again(rig: LogRig) -> None:
    await rig.put("k", 1, 2)
    async with aclosing(rig.outbox.deliveries("g")) as deliveries:
        assert [(await anext(deliveries)).message.payload for _ in range(2)] == [1, 1]


@pytest.mark.slow
async def test_nacked_delivery_comes_again_when_due_with_its_attempts(rig: LogRig) -> None:
    await rig.put("k", 1, 2)
    seen: list[tuple[Any, int]] = []
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.02))
    async with asyncio.timeout(30), aclosing(outbox.deliveries("g")) as deliveries:
        async for delivery in deliveries:
            seen.append((delivery.message.payload, delivery.attempts))
            if len(seen) < 3:
                delivery.nack()
            else:
                delivery.ack()
            if len(seen) == 4:
                break
    assert seen == [(1, 0), (1, 1), (1, 2), (2, 0)]

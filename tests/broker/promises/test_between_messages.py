"""A handler that was cancelled after its decision has decided, and one that has returned decides nothing any more."""

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy

from faststream_outbox import ConstantRetry
from faststream_outbox.annotations import OutboxMessage, OutboxSession
from faststream_outbox.errors import OutboxWarning
from tests.broker.effects import EffectsShop
from tests.waiting import eventually


async def test_handler_that_has_acked_before_a_stop_cancels_it_has_done_its_message(shop: EffectsShop) -> None:
    shop.broker.config.broker_config.graceful_timeout = 0.01
    begun: list[int] = []

    async def handle(body: int, message: OutboxMessage) -> None:
        await message.ack()
        begun.append(body)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async def writing(body: int, message: OutboxMessage, session: OutboxSession) -> None:
        await shop.write(session, body)
        await handle(body, message)

    shop.broker.subscriber("plain")(handle)
    shop.broker.subscriber("writing", transactional=True)(writing)
    await shop.broker.start()
    await shop.publish(1, queue="plain")
    await shop.publish(2, queue="writing")
    await eventually(lambda: len(begun) == 2)
    await shop.broker.stop()
    assert await shop.state() == {"effects": [2], "messages": {}, "dead": 0}


async def test_decision_after_the_handler_has_returned_is_warned_about(shop: EffectsShop) -> None:
    kept: list[Any] = []

    @shop.broker.subscriber("orders", ack_policy=AckPolicy.MANUAL, retry_strategy=ConstantRetry(delay_seconds=1000))
    async def handle(body: int, message: OutboxMessage) -> None:
        kept.append(message)

    await shop.deliver(1)
    await shop.failed()
    for decide in (kept[0].ack, kept[0].nack, kept[0].reject):
        with pytest.warns(OutboxWarning, match="Decide before the handler returns") as reported:
            await decide()
        assert reported[0].filename == __file__
    await shop.broker.stop()
    assert (await shop.state())["messages"] == {"orders": [b"1"]}

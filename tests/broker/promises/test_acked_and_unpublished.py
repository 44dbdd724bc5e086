"""A message that its handler acked comes again when what the handler returned could not be published."""

from collections.abc import Callable
from typing import Any

import pytest
from faststream import AckPolicy, BaseMiddleware
from faststream.response import PublishCommand
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxBroker, OutboxResponse
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.annotations import OutboxBatchMessage, OutboxMessage
from tests.broker.effects import EffectsShop


class RefusesFirst(BaseMiddleware):
    """Does not let the first letter through."""

    refused: list[str] = []

    async def publish_scope(self, call_next: Callable[..., Any], cmd: PublishCommand) -> Any:
        if cmd.destination == "letters" and not self.refused:
            self.refused.append(cmd.destination)
            raise ConnectionError("not this time")
        return await call_next(cmd)


@pytest.fixture
def broker(shop: EffectsShop) -> OutboxBroker:
    RefusesFirst.refused.clear()
    shop.broker = OutboxBroker(
        shop.engine, outbox_table=shop.outbox, dlq_table=shop.dlq, middlewares=[RefusesFirst], logger=None
    )
    return shop.broker


OPTIONS: dict[str, Any] = {"retry_strategy": ConstantRetry(delay_seconds=0.01), "ack_policy": AckPolicy.MANUAL}


@pytest.mark.parametrize("transactional", [False, True])
async def test_result_of_a_decorated_handler(shop: EffectsShop, broker: OutboxBroker, transactional: bool) -> None:
    @broker.publisher("letters")
    @broker.subscriber("orders", transactional=transactional, **OPTIONS)
    async def handle(number: int, msg: OutboxMessage) -> int:
        await msg.ack()
        return number

    await broker.start()
    await shop.publish(1)
    await shop.becomes(messages={"letters": [b"1"]})


async def test_result_of_a_batch(shop: EffectsShop, broker: OutboxBroker) -> None:
    @broker.publisher("letters")
    @broker.subscriber("orders", batch=True, **OPTIONS)
    async def handle(numbers: list[int], msg: OutboxBatchMessage) -> int:
        await msg.ack()
        return len(numbers)

    await broker.start()
    await shop.publish(1)
    await shop.becomes(messages={"letters": [b"1"]})


@pytest.mark.parametrize("has_session", [False, True])
async def test_response(shop: EffectsShop, broker: OutboxBroker, has_session: bool) -> None:
    @broker.subscriber("orders", **OPTIONS)
    async def handle(number: int, msg: OutboxMessage) -> OutboxResponse:
        await msg.ack()
        if not has_session:
            return OutboxResponse(number, queue="letters")
        return OutboxResponse(number, queue="letters", session=session)

    async with AsyncSession(shop.engine) as session:
        await broker.start()
        await shop.publish(1)
        await shop.becomes(messages={} if has_session else {"letters": [b"1"]})
        await broker.stop()
        await session.commit()
    await shop.becomes(messages={"letters": [b"1"]})

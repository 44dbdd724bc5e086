"""The inbox around one handler."""

from __future__ import annotations

import pytest
from faststream import AckPolicy
from faststream.nats import NatsBroker, NatsMessage, TestNatsBroker
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox.annotations import InboxSession
from faststream_outbox.errors import InvalidOptionType, TransactionEnded
from tests.inbox.conftest import Scene

ID = {"message_id": "m1"}


class Order(BaseModel):
    item: str


async def test_handler_takes_effect_once_and_others_are_left_alone(scene: Scene) -> None:
    broker = NatsBroker()
    seen: list[str] = []

    @broker.subscriber("orders")
    @scene.inbox().once
    async def bill(order: Order, session: InboxSession, message: NatsMessage) -> None:
        assert message.message_id == "m1"
        await scene.write(session, order.item)

    @broker.subscriber("letters")
    async def send(letter: str) -> None:
        seen.append(letter)

    async with TestNatsBroker(broker):
        for _ in range(3):
            await broker.publish({"item": "chair"}, "orders", headers=ID)
            await broker.publish("dear", "letters")
    assert (await scene.written(), len(seen)) == (["chair"], 3)
    assert scene.duplicates == 2


async def test_failure_keeps_nothing(scene: Scene) -> None:
    broker = NatsBroker()

    @broker.subscriber("orders")
    @scene.inbox().once
    async def bill(order: str, session: InboxSession) -> None:
        await scene.write(session, order)
        raise ValueError("no")

    @broker.subscriber("others")
    @scene.inbox().once
    async def end(order: str, session: InboxSession) -> None:
        await scene.write(session, order)
        await session.rollback()

    async with TestNatsBroker(broker):
        with pytest.raises(ValueError, match="no"):
            await broker.publish("chair", "orders", headers=ID)
        with pytest.raises(TransactionEnded):
            await broker.publish("chair", "others", headers=ID)
    assert (await scene.written(), await scene.receipts()) == ([], [])


async def test_below_the_middleware_of_the_same_inbox_it_changes_nothing(scene: Scene) -> None:
    inbox = scene.inbox()
    broker = NatsBroker(middlewares=[inbox.middleware])

    @broker.subscriber("orders")
    @inbox.once
    async def bill(order: str, session: InboxSession) -> None:
        await scene.write(session, order)

    async with TestNatsBroker(broker):
        for _ in range(2):
            await broker.publish("chair", "orders", headers=ID)
    assert (await scene.written(), scene.duplicates) == (["chair"], 1)


async def test_answer_is_kept_for_one_handler(scene: Scene) -> None:
    broker = NatsBroker()
    answers = iter((1, 2))

    @broker.subscriber("orders")
    @scene.inbox().once(keep_response=True)
    async def bill(order: str) -> dict[str, int]:
        return {"invoice": next(answers)}

    async with TestNatsBroker(broker):
        heard = [await broker.request("chair", "orders", timeout=30.0, headers=ID) for _ in range(2)]
    assert [await message.decode() for message in heard] == [{"invoice": 1}, {"invoice": 1}]
    assert {(message.body, message.content_type) for message in heard} == {(b'{"invoice":1}', "application/json")}


async def test_handler_can_be_called_by_hand(scene: Scene) -> None:
    broker = NatsBroker()

    @broker.subscriber("orders", ack_policy=AckPolicy.MANUAL)
    @scene.inbox().once
    async def bill(order: str, session: InboxSession) -> str:
        await scene.write(session, order)
        return order

    async with AsyncSession(scene.engine) as session, session.begin():
        assert await bill("chair", session=session) == "chair"
    assert (await scene.written(), await scene.receipts()) == (["chair"], [])


def test_sync_handler_is_refused(scene: Scene) -> None:
    with pytest.raises(InvalidOptionType, match="async def"):

        @scene.inbox().once
        def bill(order: str) -> None: ...


def test_schema_of_the_message_is_the_handlers(scene: Scene) -> None:
    broker = NatsBroker()

    @broker.subscriber("orders")
    @scene.inbox().once
    async def bill(order: Order, session: InboxSession) -> None: ...

    (subscriber,) = broker.subscribers
    (channel,) = subscriber.schema().values()
    payload = channel.operation.message.payload
    assert payload["properties"].keys() == {"item"}

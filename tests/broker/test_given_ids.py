"""A correlation id and a message's own id may be given in every way to publish, once."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from faststream import Response
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxResponse
from faststream_outbox.errors import InvalidMessage
from tests.broker.effects import EffectsShop

HEADERS = {"correlation_id": "mine", "tenant": "a"}


async def test_correlation_id_among_the_headers_is_enough(shop: EffectsShop) -> None:
    broker = shop.broker

    async def returning(body: int) -> OutboxResponse:
        return OutboxResponse(body, queue="returned", headers=HEADERS)

    async def plainly(body: int) -> Response:
        return Response(body, headers=HEADERS)

    broker.subscriber("returning")(returning)
    broker.publisher("sent")(broker.subscriber("plainly")(plainly))
    publisher, ours = broker.publisher("sent"), broker.publisher("sent", headers=HEADERS)
    async with AsyncSession(shop.engine) as session, session.begin():
        await broker.publish(1, "sent", headers=HEADERS, session=session)
        await broker.publish_batch(2, 3, queue="sent", headers=HEADERS, session=session)
        await publisher.publish(4, headers=HEADERS, session=session)
        await ours.publish(5, session=session)
        await ours.publish(6, correlation_id="mine", session=session)
        await broker.publish_batch(7, queue="sent", correlation_id="mine", headers={"tenant": "a"}, session=session)
        await broker.publish(8, "returning", correlation_id="theirs", session=session)
        await broker.publish(9, "plainly", correlation_id="theirs", session=session)
    await broker.start()
    sent = [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"9"]
    await shop.becomes(messages={"sent": sent, "returned": [b"8"]})
    rows = await shop.sql(
        f"select headers ->> 'correlation_id' as id, headers ->> 'tenant' as tenant from {shop.outbox.name}"
    )
    assert [(row["id"], row["tenant"]) for row in rows] == [("mine", "a")] * 9


async def test_correlation_id_of_a_call_is_taken_before_that_of_its_publisher(shop: EffectsShop) -> None:
    publisher = shop.broker.publisher("sent", headers=HEADERS)
    async with AsyncSession(shop.engine) as session, session.begin():
        await publisher.publish(1, correlation_id="of the call", session=session)
        await publisher.publish(1, headers={"correlation_id": "of the call"}, session=session)
    rows = await shop.sql(f"select headers ->> 'correlation_id' as id from {shop.outbox.name}")
    assert [row["id"] for row in rows] == ["of the call"] * 2


async def test_two_different_correlation_ids_are_refused(shop: EffectsShop) -> None:
    publisher = shop.broker.publisher("sent")
    given: dict[str, Any] = {"headers": HEADERS, "correlation_id": "other"}
    async with AsyncSession(shop.engine) as session:
        for publishing in (
            lambda: shop.broker.publish(1, "sent", session=session, **given),
            lambda: shop.broker.publish_batch(1, queue="sent", session=session, **given),
            lambda: publisher.publish(1, session=session, **given),
        ):
            with pytest.raises(InvalidMessage, match="Give it once"):
                await publishing()


async def test_messages_of_a_batch_take_the_ids_given(shop: EffectsShop) -> None:
    given = [uuid4(), None, uuid4()]
    async with AsyncSession(shop.engine) as session, session.begin():
        await shop.broker.publish_batch(1, 2, 3, queue="sent", message_ids=given, session=session)
        with pytest.raises(InvalidMessage, match="message_ids has 1 entries for 2 messages"):
            await shop.broker.publish_batch(1, 2, queue="sent", message_ids=given[:1], session=session)
    rows = await shop.sql(f"select message_id from {shop.outbox.name} order by id")
    stored = [row["message_id"] for row in rows]
    assert (stored[0], stored[2]) == (given[0], given[2])
    assert isinstance(stored[1], UUID)


def test_id_of_a_response_belongs_to_its_own_queue() -> None:
    with pytest.raises(InvalidMessage, match="queue or a topic of its own"):
        OutboxResponse(1, message_id=uuid4())

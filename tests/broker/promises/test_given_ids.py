"""A correlation id and a message's own id may be given in every way to publish, once."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from faststream import BaseMiddleware, Response
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxResponse
from faststream_outbox.annotations import OutboxMessage
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


async def test_id_that_was_drawn_is_stored_once_and_is_the_correlation_id_of_whoever_looks(shop: EffectsShop) -> None:
    drawn: list[str | None] = []
    read: list[tuple[str, str, str]] = []

    class Looking(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            drawn.append(cmd.correlation_id)
            return await call_next(cmd)

    shop.broker.add_middleware(Looking)
    publisher = shop.broker.publisher("sent", headers={"tenant": "a"})

    @shop.broker.subscriber("sent")
    async def look(body: int, message: OutboxMessage) -> None:
        read.append((message.correlation_id, message.message_id, message.headers["correlation_id"]))

    async with AsyncSession(shop.engine) as session, session.begin():
        await shop.broker.publish(1, "sent", key="k", session=session)
        await shop.broker.publish(2, "sent", activate_in=timedelta(0), timer_id="t", session=session)
        await publisher.publish(3, session=session)
    rows = await shop.sql(f"select message_id::text as own, headers from {shop.outbox.name} order by id")
    json = {"content-type": "application/json"}
    assert [row["headers"] for row in rows] == [json, json, json | {"tenant": "a"}]
    assert {row["own"] for row in rows} == set(drawn)
    await shop.broker.start()
    await shop.becomes()
    assert sorted(read) == sorted((one, one, one) for one in drawn)


async def test_id_that_was_drawn_is_a_header_where_it_cannot_be_the_messages_own(shop: EffectsShop) -> None:
    given = uuid4()

    class Renaming(BaseMiddleware):
        async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
            cmd.correlation_id = f"of {cmd.body}"
            return await call_next(cmd)

    async with AsyncSession(shop.engine) as session, session.begin():
        await shop.broker.publish(1, "sent", message_id=given, session=session)
        shop.broker.add_middleware(Renaming)
        await shop.broker.publish(2, "sent", session=session)
        await shop.broker.publish(3, "sent", message_id=given, session=session)
    found = await shop.sql(
        f"select message_id, headers ->> 'correlation_id' as correlation from {shop.outbox.name} order by id"
    )
    assert [row["message_id"] == given for row in found] == [True, False, True]
    assert UUID(found[0]["correlation"]) != given
    assert [row["correlation"] for row in found[1:]] == ["of 2", "of 3"]


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

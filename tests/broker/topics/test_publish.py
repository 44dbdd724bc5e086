"""Every way to publish to a topic, and the transaction that each of them writes in."""

from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
from faststream import BaseMiddleware, Depends, Response
from faststream.types import AsyncFunc
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox import OutboxResponse
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from faststream_outbox.errors import DuplicateMessage, SessionRequired
from tests.broker.topics.stage import Stage


async def test_message_is_there_with_the_commit_and_not_before(stage: Stage) -> None:
    async with AsyncSession(stage.engine) as session, session.begin():
        position = await stage.broker.publish({"id": 1}, topic="orders", key="order-1", session=session)
        assert await stage.in_log() == []
    (row,) = await stage.in_log()
    assert (row["uri"], row["position"], row["body"]) == ("orders/order-1", position, b'{"id":1}')


async def test_rollback_publishes_nothing(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    async with AsyncSession(stage.engine) as session:
        await stage.broker.publish(1, topic="orders", key="order-1", session=session)
        await stage.broker.publish_batch(2, 3, topic="orders", session=session)
        await session.rollback()
    await stage.publish(4, key="order-1")
    await stage.caught_up()
    assert stage.seen == [4]


async def test_queue_and_topic_commit_together(stage: Stage) -> None:
    async with AsyncSession(stage.engine) as session, session.begin():
        await stage.broker.publish(1, topic="orders", key="order-1", session=session)
        await stage.broker.publish(2, "mails", session=session)
    assert [row["body"] for row in await stage.in_log()] == [b"1"]
    assert await stage.in_queue("mails") == [b"2"]


async def test_connection_will_do_for_a_session(stage: Stage) -> None:
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="orders", session=connection)
    assert [row["uri"] for row in await stage.in_log()] == ["orders"]


async def test_slash_in_a_key_makes_no_other_topic_of_it(stage: Stage) -> None:
    await stage.publish(1, key="a/b%")
    assert [row["uri"] for row in await stage.in_log()] == ["orders/a%2Fb%25"]


async def test_batch_has_a_key_for_each_message(stage: Stage) -> None:
    positions = await stage.publish("a", "b", "c", keys=["k1", None, "k2"])
    rows = await stage.in_log()
    assert [(row["uri"], row["body"]) for row in rows] == [("orders/k1", b"a"), ("orders", b"b"), ("orders/k2", b"c")]
    assert [row["position"] for row in rows] == positions


async def test_batch_without_messages_is_nothing(stage: Stage) -> None:
    assert await stage.publish() == []


async def test_sync_session_publishes(stage: Stage, sync_engine: Engine) -> None:
    with Session(sync_engine) as session:
        with session.begin():
            position = stage.broker.publish_sync({"id": 1}, topic="orders", key="order-1", session=session)
        with session.begin():
            stage.broker.publish_sync({"id": 2}, topic="orders", session=session)
            session.rollback()
    (row,) = await stage.in_log()
    assert (row["uri"], row["position"], row["body"]) == ("orders/order-1", position, b'{"id":1}')


async def test_what_a_sync_session_published_is_delivered(stage: Stage, sync_engine: Engine) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    with sync_engine.begin() as connection:
        stage.broker.publish_sync(1, topic="orders", key="order-1", session=connection)
    assert await stage.saw(1) == [1]


async def test_without_a_session_it_says_what_to_pass(stage: Stage) -> None:
    with pytest.raises(SessionRequired, match="autocommit=True"):
        await stage.broker.publish(1, topic="orders")


async def test_autocommit_publishes_in_a_transaction_of_its_own(stage: Stage) -> None:
    broker = stage.replace(autocommit=True)
    await broker.publish(1, topic="orders", key="order-1")
    await broker.publish_batch(2, 3, topic="orders")
    assert [row["body"] for row in await stage.in_log()] == [b"1", b"2", b"3"]


async def test_autocommit_with_a_session_leaves_the_commit_to_it(stage: Stage) -> None:
    broker = stage.replace(autocommit=True)
    async with AsyncSession(stage.engine) as session:
        await broker.publish(1, topic="orders", session=session)
        await session.rollback()
    assert await stage.in_log() == []


async def test_message_id_is_unique_in_the_topic(stage: Stage) -> None:
    message_id = uuid4()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="orders", message_id=message_id, session=connection)
        with pytest.raises(DuplicateMessage, match=str(message_id)):
            await stage.broker.publish(2, topic="orders", message_id=message_id, session=connection)
    assert [row["event_id"] for row in await stage.in_log()] == [message_id]


async def test_publisher_object_publishes_with_its_own_key_and_headers(stage: Stage) -> None:
    publisher = stage.broker.publisher(topic="orders", key="usual", headers={"from": "shop"})
    async with stage.engine.begin() as connection:
        await publisher.publish(1, session=connection)
        await publisher.publish(2, session=connection, key="other", headers={"more": "x"})
        await publisher.publish(3, "mails", session=connection)
    first, second = await stage.in_log()
    assert (first["uri"], first["metadata"]["from"]) == ("orders/usual", "shop")
    assert (second["uri"], second["metadata"]["from"], second["metadata"]["more"]) == ("orders/other", "shop", "x")
    assert await stage.in_queue("mails") == [b"3"]


async def test_decorator_publishes_what_a_handler_returns(stage: Stage) -> None:
    @stage.broker.publisher(topic="bills", key="usual")
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> int:
        return body + 1

    @stage.broker.subscriber(topic="bills", group="mail")
    async def mail(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    assert await stage.saw(1) == [2]
    assert [row["uri"] for row in await stage.in_log("bills")] == ["bills/usual"]


async def test_handler_of_a_queue_publishes_to_a_topic_and_back(stage: Stage) -> None:
    @stage.broker.publisher(topic="orders")
    @stage.broker.subscriber("requests")
    async def request(body: int) -> int:
        return body + 1

    @stage.broker.publisher("mails")
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> int:
        return body + 1

    @stage.broker.subscriber("mails")
    async def mail(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, "requests", session=connection)
    assert await stage.saw(1) == [3]


async def test_key_of_a_response_goes_before_the_publishers_own(stage: Stage) -> None:
    @stage.broker.publisher(topic="bills", key="usual")
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> OutboxResponse:
        return OutboxResponse(body, key="mine", headers={"a": "1"})

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.caught_up()
    (row,) = await stage.in_log("bills")
    assert (row["uri"], row["metadata"]["a"]) == ("bills/mine", "1")


async def test_several_publishers_each_write_to_their_own(stage: Stage) -> None:
    @stage.broker.publisher(topic="bills")
    @stage.broker.publisher("mails")
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> Response:
        return Response(body)

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.caught_up()
    assert [row["body"] for row in await stage.in_log("bills")] == [b"1"]
    assert await stage.in_queue("mails") == [b"1"]


@pytest.mark.parametrize("transactional", [False, True])
async def test_response_goes_to_its_own_topic(stage: Stage, transactional: bool) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=transactional)
    async def handle(body: int) -> OutboxResponse:
        return OutboxResponse(body + 1, topic="bills", key="bill-1", headers={"a": "1"})

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.caught_up()
    (row,) = await stage.in_log("bills")
    assert (row["uri"], row["body"], row["metadata"]["a"]) == ("bills/bill-1", b"2", "1")


async def test_response_is_written_in_its_session(stage: Stage) -> None:
    async def opened() -> Any:
        async with AsyncSession(stage.engine) as session, session.begin():
            yield session
            assert await stage.in_log("bills") == []

    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int, session: Annotated[AsyncSession, Depends(opened)]) -> OutboxResponse:
        await stage.write(session, body)
        return OutboxResponse(body + 1, topic="bills", session=session)

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.caught_up()
    assert [row["body"] for row in await stage.in_log("bills")] == [b"2"]
    assert await stage.effect_numbers() == [1]


async def test_answer_goes_to_reply_to(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> int:
        return body + 1

    @stage.broker.subscriber("answers")
    async def answered(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="orders", key="order-1", reply_to="answers", session=connection)
    assert await stage.saw(1) == [2]


async def test_no_reply_answers_nobody(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", no_reply=True)
    async def handle(body: int) -> int:
        return body + 1

    await stage.broker.start()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="orders", key="order-1", reply_to="answers", session=connection)
    await stage.caught_up()
    assert await stage.in_queue("answers") == []


async def test_headers_of_a_message_are_passed_on_where_asked_for(stage: Stage) -> None:
    @stage.broker.publisher(topic="bills")
    @stage.broker.subscriber(topic="orders", group="billing", propagate_inbound_headers=True)
    async def handle(body: int) -> int:
        return body

    await stage.broker.start()
    message_id = uuid4()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(
            1, topic="orders", key="1", headers={"tenant": "acme"}, message_id=message_id, session=connection
        )
    await stage.caught_up()
    (row,) = await stage.in_log("bills")
    assert row["metadata"]["tenant"] == "acme"
    assert row["event_id"] != message_id


async def test_handler_publishes_with_the_broker_of_the_context(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", transactional=True)
    async def handle(body: int, outbox: BrokerOfHandler) -> None:
        await outbox.publish(body + 1, topic="bills", key="bill-1")

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    await stage.caught_up()
    assert [row["body"] for row in await stage.in_log("bills")] == [b"2"]


async def test_publish_middleware_sees_the_topic(stage: Stage) -> None:
    class Seeing(BaseMiddleware):
        async def publish_scope(self, call_next: AsyncFunc, cmd: Any) -> Any:
            stage.seen.append((cmd.destination, cmd.is_topic, cmd.key))
            cmd.headers = {**(cmd.headers or {}), "seen": "yes"}
            return await call_next(cmd)

    broker = stage.replace(middlewares=[Seeing])
    async with stage.engine.begin() as connection:
        await broker.publish(1, topic="orders", key="order-1", session=connection)
    assert stage.seen == [("orders", True, "order-1")]
    assert [row["metadata"]["seen"] for row in await stage.in_log()] == ["yes"]


async def test_message_id_is_an_uuid_and_the_same_at_every_attempt(stage: Stage) -> None:
    (position,) = await stage.publish(1, key="order-1")
    ids: list[str] = []

    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        message = stage.broker.context.get_local("message")
        ids.append(message.message_id)
        if len(ids) == 1:
            await message.nack(delay=0.01)

    await stage.broker.start()
    await stage.caught_up()
    assert ids[0] == ids[1] == str(UUID(ids[0]))
    assert position > 0

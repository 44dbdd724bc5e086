"""Every way to publish to a topic, and the transaction that each of them writes in; what is published once only."""

import asyncio
from typing import Annotated, Any
from uuid import UUID, uuid4

import pytest
from faststream import BaseMiddleware, Depends, Response
from faststream.types import AsyncFunc
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox import OutboxResponse
from faststream_outbox.errors import InvalidMessage, InvalidOption, InvalidOptionType, SessionRequired
from faststream_outbox.log import DuplicateMessage
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

ID = UUID(int=7)


def more(body: int) -> int:
    return body + 1


async def bodies(stage: Stage, topic: str = "bills") -> list[bytes]:
    return [row["body"] for row in await stage.in_log(topic)]


async def test_message_is_there_with_the_commit_and_not_before(stage: Stage) -> None:
    async with AsyncSession(stage.engine) as session, session.begin():
        position = await stage.broker.publish({"id": 1}, topic="orders", key="order-1", session=session)
        assert await stage.in_log() == []
    (row,) = await stage.in_log()
    assert (row["uri"], row["position"], row["body"]) == ("orders/order-1", position, b'{"id":1}')


async def test_rollback_publishes_nothing(stage: Stage) -> None:
    stage.reads()
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
    assert await bodies(stage, "orders") == [b"1"]
    assert await stage.in_queue("mails") == [b"2"]


async def test_batch_has_a_key_for_each_message(stage: Stage) -> None:
    """A slash in a key makes no other topic of it."""
    positions = await stage.publish("a", "b", "c", keys=["k1", None, "a/b%"])
    rows = await stage.in_log()
    assert [row["uri"] for row in rows] == ["orders/k1", "orders", "orders/a%2Fb%25"]
    assert [row["body"] for row in rows] == [b"a", b"b", b"c"]
    assert [row["position"] for row in rows] == positions
    assert len({row["metadata"]["correlation_id"] for row in rows}) == 3
    stage.reads(notes=lambda _, message: message.raw_message.key)
    await stage.broker.start()
    assert await stage.saw(3) == ["k1", None, "a/b%"]


async def test_batch_without_messages_is_nothing(stage: Stage) -> None:
    assert await stage.publish() == []


async def test_sync_session_publishes(stage: Stage, sync_engine: Engine) -> None:
    stage.reads()
    await stage.broker.start()
    with Session(sync_engine) as session:
        with session.begin():
            position = stage.broker.publish_sync({"id": 1}, topic="orders", key="order-1", session=session)
        with session.begin():
            stage.broker.publish_sync({"id": 2}, topic="orders", session=session)
            session.rollback()
    (row,) = await stage.in_log()
    assert (row["uri"], row["position"], row["body"]) == ("orders/order-1", position, b'{"id":1}')
    assert await stage.saw(1) == [{"id": 1}]


async def test_without_a_session_it_says_what_to_pass(stage: Stage) -> None:
    with pytest.raises(SessionRequired, match="autocommit=True"):
        await stage.broker.publish(1, topic="orders")


async def test_autocommit_publishes_in_a_transaction_of_its_own(stage: Stage) -> None:
    broker = stage.replace(autocommit=True)
    await broker.publish(1, topic="orders", key="order-1")
    await broker.publish_batch(2, 3, topic="orders")
    assert await bodies(stage, "orders") == [b"1", b"2", b"3"]


async def test_autocommit_with_a_session_leaves_the_commit_to_it(stage: Stage) -> None:
    broker = stage.replace(autocommit=True)
    async with AsyncSession(stage.engine) as session:
        await broker.publish(1, topic="orders", session=session)
        await session.rollback()
    assert await stage.in_log() == []


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


async def test_handler_of_a_queue_publishes_to_a_topic_and_back(stage: Stage) -> None:
    @stage.broker.publisher(topic="orders")
    @stage.broker.subscriber("requests")
    async def request(body: int) -> int:
        return body + 1

    stage.broker.publisher("mails")(stage.reads(returns=more))
    await stage.broker.start()
    await stage.send(1, "requests")
    assert await stage.saw(1) == [2]
    await stage.caught_up()
    assert await stage.in_queue("mails") == [b"3"]


async def test_several_publishers_each_write_to_their_own(stage: Stage) -> None:
    handler = stage.reads(returns=Response)
    stage.broker.publisher("mails")(handler)
    stage.broker.publisher(topic="bills", key="usual")(handler)
    await stage.play(1)
    await stage.caught_up()
    assert [(row["uri"], row["body"]) for row in await stage.in_log("bills")] == [("bills/usual", b"1")]
    assert await stage.in_queue("mails") == [b"1"]


async def test_key_of_a_response_goes_before_the_publishers_own(stage: Stage) -> None:
    handler = stage.reads(returns=lambda body: OutboxResponse(body, key="mine", headers={"a": "1"}))
    stage.broker.publisher(topic="bills", key="usual")(handler)
    await stage.play(1)
    await stage.caught_up()
    (row,) = await stage.in_log("bills")
    assert (row["uri"], row["metadata"]["a"]) == ("bills/mine", "1")


@pytest.mark.parametrize("transactional", [False, True])
async def test_response_goes_to_its_own_topic(stage: Stage, transactional: bool) -> None:
    def response(body: int) -> OutboxResponse:
        return OutboxResponse(body + 1, topic="bills", key="bill-1", headers={"a": "1"})

    stage.reads(transactional=transactional, returns=response)
    await stage.play(1)
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

    await stage.play(1)
    await stage.caught_up()
    assert await bodies(stage) == [b"2"]
    assert await stage.effect_numbers() == [1]


@pytest.mark.parametrize("no_reply", [False, True])
async def test_answer_goes_to_reply_to_unless_there_is_none(stage: Stage, no_reply: bool) -> None:
    stage.reads(returns=more, no_reply=no_reply)
    await stage.broker.start()
    await stage.send(1, reply_to="answers")
    await stage.caught_up()
    assert await stage.in_queue("answers") == ([] if no_reply else [b"2"])


@pytest.mark.parametrize("propagated", [False, True])
async def test_headers_of_a_message_are_passed_on_where_asked_for(stage: Stage, propagated: bool) -> None:
    stage.broker.publisher(topic="bills")(stage.reads(returns=more, propagate_inbound_headers=propagated))
    await stage.broker.start()
    message_id = uuid4()
    await stage.send(1, headers={"tenant": "acme"}, correlation_id="c-1", message_id=message_id)
    await stage.caught_up()
    (row,) = await stage.in_log("bills")
    assert row["metadata"].get("tenant") == ("acme" if propagated else None)
    assert row["metadata"]["correlation_id"] == "c-1"
    assert row["event_id"] != message_id


async def test_publish_middleware_sees_the_topic(stage: Stage) -> None:
    class Seeing(BaseMiddleware):
        async def publish_scope(self, call_next: AsyncFunc, cmd: Any) -> Any:
            stage.seen.append((cmd.destination, cmd.is_topic, cmd.key))
            cmd.headers = {**(cmd.headers or {}), "seen": "yes"}
            return await call_next(cmd)

    stage.replace(middlewares=[Seeing])
    await stage.send(1, key="order-1")
    assert stage.seen == [("orders", True, "order-1")]
    assert [row["metadata"]["seen"] for row in await stage.in_log()] == ["yes"]


async def test_message_id_is_an_uuid_and_the_same_at_every_attempt(stage: Stage) -> None:
    await stage.publish(1, key="order-1")

    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        message = stage.broker.context.get_local("message")
        stage.seen.append(message.message_id)
        if len(stage.seen) == 1:
            await message.nack(delay=0.01)

    await stage.broker.start()
    await stage.caught_up()
    first, second = stage.seen
    assert first == second == str(UUID(first))


async def test_sync_publisher_can_leave_it_out_too(stage: Stage) -> None:
    await stage.send(1, message_id=ID)

    def again(session: Session) -> int | None:
        return stage.broker.publish_sync(2, topic="orders", message_id=ID, session=session, on_duplicate="ignore")

    async with AsyncSession(stage.engine) as session, session.begin():
        assert await session.run_sync(again) is None


async def test_choice_that_is_none_is_refused_and_so_is_one_for_a_queue(stage: Stage) -> None:
    with pytest.raises(InvalidOption, match="on_duplicate"):
        await stage.send(1, message_id=ID, on_duplicate="replace")
    with pytest.raises(InvalidMessage, match="for topics"):
        await stage.send(1, "orders", on_duplicate="ignore")


async def test_publishers_of_one_key_follow_each_other_if_asked_for(stage: Stage) -> None:
    broker = stage.another(strict_key_order=True)

    async def second() -> None:
        async with AsyncSession(stage.engine) as session, session.begin():
            await broker.publish(2, topic="orders", key="k", session=session)

    async with AsyncSession(stage.engine) as session:
        await broker.publish(1, topic="orders", key="k", session=session)
        pid = (await session.connection()).sync_connection.connection.driver_connection.get_server_pid()  # type: ignore[union-attr]
        waiting = asyncio.create_task(second())

        async def waits() -> bool:
            return waiting.done() or bool(
                await stage.sql(f"select 1 from pg_stat_activity where {pid} = any (pg_blocking_pids(pid))")
            )

        await eventually(waits)
        assert not waiting.done()
        await session.commit()
    await waiting


def test_strict_order_is_yes_or_no(stage: Stage) -> None:
    with pytest.raises(InvalidOptionType, match="strict_key_order"):
        stage.another(strict_key_order="yes")


async def test_topic_leaves_out_an_id_that_it_has_in_every_way(stage: Stage) -> None:
    first, second, third = (uuid4() for _ in range(3))
    publisher = stage.broker.publisher(topic="orders")

    def response(body: int) -> OutboxResponse | None:
        if body > 1:
            return None
        return OutboxResponse(body, topic="bills", message_id=third, on_duplicate="ignore")

    stage.reads(returns=response)
    async with AsyncSession(stage.engine) as session, session.begin():
        assert await publisher.publish(1, message_id=first, session=session)
        assert await publisher.publish(1, message_id=first, on_duplicate="ignore", session=session) is None
        written = await stage.broker.publish_batch(
            1, 2, 3, topic="orders", message_ids=[first, second, None], on_duplicate="ignore", session=session
        )
        assert len(written) == 2
        with pytest.raises(DuplicateMessage):
            await stage.broker.publish_batch(1, 2, topic="orders", message_ids=[second, None], session=session)
        await stage.broker.publish(0, topic="bills", message_id=third, session=session)
    await stage.broker.start()
    await stage.caught_up()
    assert [row["body"] for row in await stage.in_log("bills")] == [b"0"]

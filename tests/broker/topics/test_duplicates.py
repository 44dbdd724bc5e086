"""Messages that are published once only, and publishers of one key that follow each other."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from faststream_outbox import OutboxBroker, OutboxResponse, TestOutboxBroker, make_outbox_table
from faststream_outbox.errors import InvalidMessage, InvalidOption, InvalidOptionType
from faststream_outbox.log import DuplicateMessage, make_log_tables
from faststream_outbox.testing import fake_session
from tests.broker.topics.stage import Stage
from tests.waiting import eventually

ID = UUID(int=7)


async def publish(stage: Stage, body: Any, **options: Any) -> int | None:
    async with AsyncSession(stage.engine) as session, session.begin():
        return await stage.broker.publish(body, topic="orders", message_id=ID, session=session, **options)


async def test_message_that_is_there_already_can_be_left_out(stage: Stage) -> None:
    assert await publish(stage, 1) == 1
    with pytest.raises(DuplicateMessage):
        await publish(stage, 2)
    assert await publish(stage, 3, on_duplicate="ignore") is None
    assert [row["body"] for row in await stage.in_log()] == [b"1"]


async def test_sync_publisher_can_leave_it_out_too(stage: Stage) -> None:
    await publish(stage, 1)

    def again(session: Session) -> int | None:
        return stage.broker.publish_sync(2, topic="orders", message_id=ID, session=session, on_duplicate="ignore")

    async with AsyncSession(stage.engine) as session, session.begin():
        assert await session.run_sync(again) is None


async def test_test_broker_knows_what_is_there_already() -> None:
    metadata = MetaData()
    broker = OutboxBroker(
        outbox_table=make_outbox_table(metadata), dlq_table=None, log_tables=make_log_tables(metadata, "outbox_log")
    )
    seen: list[int] = []

    @broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        seen.append(body)

    given: dict[str, Any] = {"topic": "orders", "message_id": ID, "session": fake_session()}
    async with TestOutboxBroker(broker) as tested:
        assert await tested.publish(1, **given) is not None
        assert await tested.publish(2, on_duplicate="ignore", **given) is None
        with pytest.raises(DuplicateMessage):
            await tested.publish(3, **given)
    assert seen == [1]


async def test_choice_that_is_none_is_refused_and_so_is_one_for_a_queue(stage: Stage) -> None:
    with pytest.raises(InvalidOption, match="on_duplicate"):
        await publish(stage, 1, on_duplicate="replace")
    async with AsyncSession(stage.engine) as session:
        with pytest.raises(InvalidMessage, match="for topics"):
            await stage.broker.publish(1, queue="orders", session=session, on_duplicate="ignore")


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

    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> OutboxResponse | None:
        if body > 1:
            return None
        return OutboxResponse(body, topic="bills", message_id=third, on_duplicate="ignore")

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

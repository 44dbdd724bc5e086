"""Pausing through the broker, with a database and without one."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox import OutboxBroker, OutboxRouter
from faststream_outbox.errors import UnknownName
from tests.broker.conformance.ways import Seen


@pytest.fixture
async def broker(engine: AsyncEngine, table: Table, dlq_table: Table) -> AsyncIterator[OutboxBroker]:
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=dlq_table, logger=None)
    yield broker
    await broker.stop()


@pytest.fixture
def seen(broker: OutboxBroker) -> Seen:
    seen, router = Seen(), OutboxRouter(prefix="shop-")

    @router.subscriber("mails")
    async def handle(body: int) -> None:
        seen(body)

    broker.include_router(router)
    return seen


async def test_queue_is_paused_and_resumed(broker: OutboxBroker, seen: Seen) -> None:
    assert await broker.pause("shop-mails")
    assert await broker.paused() == ["shop-mails"]
    await broker.start()
    async with AsyncSession(broker.engine) as session, session.begin():
        await broker.publish(1, "shop-mails", session=session)
    assert seen == []
    assert await broker.resume("shop-mails")
    await seen.first(1)
    assert await broker.paused() == []


async def test_queue_that_nobody_knows_is_refused_with_that_of_a_subscriber(broker: OutboxBroker, seen: Seen) -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'shop-mails'\?"):
        await broker.pause("shop-mailz")
    assert await broker.pause("shop-mailz", create=True)
    with pytest.raises(UnknownName, match=r"did you mean 'shop-mailz'\?"):
        await broker.resume("mailz")


async def test_topic_is_no_queue(engine: AsyncEngine, table: Table) -> None:
    broker, router = OutboxBroker(engine, outbox_table=table, dlq_table=None), OutboxRouter()
    router.subscriber(topic="news", group="billing")
    broker.include_router(router)
    with pytest.raises(UnknownName, match="no queue is known yet"):
        await broker.pause("news")

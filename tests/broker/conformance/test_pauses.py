"""A paused queue keeps its messages until it is resumed."""

import pytest

from faststream_outbox import OutboxBroker, OutboxRouter
from faststream_outbox.errors import UnknownName
from tests.broker.conformance.ways import Seen, Way, noting


async def test_paused_queue_keeps_its_messages(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    router = OutboxRouter(prefix="shop-")
    noting(router, seen, ["orders", "bills"])
    broker.include_router(router)
    async with way.running(broker):
        assert await broker.pause("shop-orders")
        assert not await broker.pause("shop-orders")
        await way.publish(1, "shop-orders")
        await way.publish(2, "shop-orders", key="a")
        await way.publish(3, "shop-bills")
        assert await seen.first() == [3]
        assert await way.bodies("shop-orders") == [b"1", b"2"]
        assert await broker.paused() == ["shop-orders"]
        assert await broker.resume("shop-orders")
        assert not await broker.resume("shop-orders")
        assert sorted(await seen.first(3)) == [1, 2, 3]
        await way.becomes("shop-orders")
        assert await broker.paused() == []


@pytest.mark.topics
async def test_pause_is_no_message_and_needs_a_queue_that_is_known(way: Way, broker: OutboxBroker, seen: Seen) -> None:
    noting(broker, seen, topic="news", group="billing")
    async with way.running(broker):
        with pytest.raises(UnknownName, match="no queue is known yet"):
            await broker.pause("news")
        assert await broker.pause("orders", create=True)
        for asked in (broker.pause, broker.resume):
            with pytest.raises(UnknownName, match=r"did you mean 'orders'\?"):
                await asked("order")
        async with way.transaction() as session:
            assert await broker.fetch_unprocessed(session=session) == []

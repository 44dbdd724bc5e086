"""A paused queue keeps its messages until it is resumed."""

import pytest

from faststream_outbox.errors import UnknownName
from tests.broker.conformance.ways import Seen, Way


async def test_paused_queue_keeps_its_messages(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber(["orders", "bills"])
    async def handle(body: int) -> None:
        seen(body)

    async with way.running(broker):
        assert await broker.pause("orders")
        assert not await broker.pause("orders")
        await way.publish(1, "orders")
        await way.publish(2, "orders", key="a")
        await way.publish(3, "bills")
        assert await seen.first() == [3]
        assert await way.bodies("orders") == [b"1", b"2"]
        assert await broker.paused() == ["orders"]
        assert await broker.resume("orders")
        assert not await broker.resume("orders")
        assert sorted(await seen.first(3)) == [1, 2, 3]
        await way.becomes("orders")


async def test_pause_is_no_message(way: Way) -> None:
    broker = way.broker()
    async with way.running(broker):
        await broker.pause("orders", create=True)
        async with way.transaction() as session:
            assert await broker.fetch_unprocessed(session=session) == []


async def test_queue_that_nobody_knows_is_refused(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    async def handle(body: int) -> None: ...

    async with way.running(broker):
        with pytest.raises(UnknownName, match=r"did you mean 'orders'\?"):
            await broker.pause("order")

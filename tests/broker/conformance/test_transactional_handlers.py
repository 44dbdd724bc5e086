"""Transactional handlers behave in memory as they do on PostgreSQL."""

from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, OutboxResponse
from faststream_outbox.annotations import OutboxBroker, OutboxSession
from tests.broker.conformance.ways import Seen, Way
from tests.waiting import eventually

LATER = ConstantRetry(delay_seconds=1000)


async def test_handler_gets_a_session(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> None:
        seen(isinstance(session, AsyncSession) and session.in_transaction())

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [True]
        await way.empty()


async def test_handler_publishes_without_naming_the_session(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", transactional=True)
    async def handle(body: int, outbox: OutboxBroker) -> None:
        await outbox.publish(body + 1, "nobody")

    async with way.running(broker):
        await way.publish(1, "orders")

        async def only_the_published_one_is_left() -> bool:
            return [(row["queue"], row["payload"]) for row in await way.rows()] == [("nobody", b"2")]

        await eventually(only_the_published_one_is_left)


async def test_what_a_failing_handler_published_is_gone(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", transactional=True, retry_strategy=LATER)
    async def handle(body: int, outbox: OutboxBroker) -> None:
        await outbox.publish(body, "nobody")
        raise ValueError

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.attempted()
        assert [row["queue"] for row in await way.rows()] == ["orders"]


async def test_what_a_failing_handler_published_is_not_delivered(live: Way, seen: Seen) -> None:
    broker = live.broker()

    @broker.subscriber("orders", transactional=True, retry_strategy=LATER)
    async def handle(body: int, outbox: OutboxBroker) -> None:
        await outbox.publish(body, "bills")
        raise ValueError

    @broker.subscriber("bills")
    async def collected(body: int) -> None:
        seen(body)

    async with live.running(broker):
        await live.publish(1, "orders")
        await live.attempted()
        await live.publish(2, "bills")
        assert await seen.first() == [2]


async def test_nested_publishing_is_delivered_after_the_handler(live: Way, seen: Seen) -> None:
    broker = live.broker()

    @broker.subscriber("orders", transactional=True)
    async def handle(body: int, outbox: OutboxBroker) -> None:
        await outbox.publish(body, "bills")
        seen("handler")

    @broker.subscriber("bills")
    async def collected(body: int) -> None:
        seen("bill")

    async with live.running(broker):
        await live.publish(1, "orders")
        assert await seen.first(2) == ["handler", "bill"]


async def test_response_of_a_handler_joins_its_transaction(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> OutboxResponse:
        return OutboxResponse(body, queue="bills", session=session)

    @broker.subscriber("bills")
    async def collected(body: int) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [1]
        await way.empty()
    assert seen == [1]


async def test_response_of_a_sync_handler_is_published(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    def handle(body: int) -> OutboxResponse:
        return OutboxResponse(body, queue="bills")

    @broker.subscriber("bills")
    async def collected(body: int) -> None:
        seen(body)

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [1]
        await way.empty()


async def test_failing_batch_leaves_nothing_published(way: Way) -> None:
    broker = way.broker()

    @broker.subscriber("orders", transactional=True, batch=True, retry_strategy=LATER)
    async def handle(bodies: list[int], outbox: OutboxBroker) -> None:
        await outbox.publish(len(bodies), "nobody")
        raise ValueError

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.attempted()
        assert [row["queue"] for row in await way.rows()] == ["orders"]

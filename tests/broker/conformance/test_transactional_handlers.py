"""Transactional handlers behave in memory as they do on PostgreSQL."""

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import ConstantRetry, OutboxResponse
from faststream_outbox import OutboxBroker as Broker
from faststream_outbox.annotations import OutboxBroker, OutboxSession
from tests.broker.conformance.ways import Seen, Way, noting

LATER = ConstantRetry(delay_seconds=1000)


async def test_handler_gets_a_session_and_publishes_without_naming_it(way: Way, broker: Broker, seen: Seen) -> None:
    @broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession, outbox: OutboxBroker) -> None:
        await outbox.publish(body + 1, "nobody")
        seen(isinstance(session, AsyncSession) and session.in_transaction())

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [True]
        await way.becomes("nobody", b"2")
        await way.becomes("orders")


@pytest.mark.parametrize("batch", [False, True])
async def test_what_a_failing_handler_published_is_gone(way: Way, broker: Broker, *, batch: bool) -> None:
    @broker.subscriber("orders", transactional=True, batch=batch, retry_strategy=LATER)
    async def handle(body: int | list[int], outbox: OutboxBroker) -> None:
        await outbox.publish(1, "nobody")
        raise ValueError

    async with way.running(broker):
        await way.publish_to_failing(1, "orders")
        await way.attempted()
        assert [row["queue"] for row in await way.rows()] == ["orders"]


async def test_what_a_handler_published_is_delivered_after_it_and_only_if_it_succeeds(live: Way, seen: Seen) -> None:
    broker = live.broker()

    @broker.subscriber("orders", transactional=True, retry_strategy=LATER)
    async def handle(body: int, outbox: OutboxBroker) -> None:
        await outbox.publish(f"bill {body}", "bills")
        seen(f"handler {body}")
        if body == 1:
            raise ValueError

    noting(broker, seen, "bills")
    async with live.running(broker):
        await live.publish(1, "orders")
        await live.attempted()
        await live.publish(2, "orders")
        assert await seen.first(3) == ["handler 1", "handler 2", "bill 2"]


async def test_response_of_a_handler_joins_its_transaction(way: Way, broker: Broker, seen: Seen) -> None:
    @broker.subscriber("orders", transactional=True)
    async def handle(body: int, session: OutboxSession) -> OutboxResponse:
        return OutboxResponse(body, queue="bills", session=session)

    noting(broker, seen, "bills")
    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [1]
        await way.empty()
    assert seen == [1]

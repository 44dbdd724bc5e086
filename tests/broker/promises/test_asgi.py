"""Health, documents and try-it-out over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from faststream.asgi import AsgiFastStream, AsyncAPIRoute, make_ping_asgi
from sqlalchemy import Table, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import OutboxBroker
from tests.broker.asgi import running
from tests.broker.conformance.ways import Seen


def _asked(message: Any, *, real: bool, channel: str = "orders:Handle") -> dict[str, Any]:
    return {"channelName": channel, "message": {"message": message}, "options": {"sendToRealBroker": real}}


@asynccontextmanager
async def _served(broker: OutboxBroker) -> AsyncIterator[httpx.AsyncClient]:
    app = AsgiFastStream(
        broker,
        asgi_routes=[("/health", make_ping_asgi(broker, timeout=30.0))],
        asyncapi_path=AsyncAPIRoute("/docs"),
        logger=None,
    )
    async with running(app) as client:
        yield client


@pytest.fixture
def broker(engine: AsyncEngine, table: Table) -> OutboxBroker:
    return OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None, autocommit=True)


@pytest.fixture
async def seen(broker: OutboxBroker) -> Seen:
    """What a handler of `orders` saw; it answers with one more."""
    seen = Seen()

    @broker.subscriber("orders")
    async def handle(body: int) -> int:
        seen(body)
        return body + 1

    return seen


async def test_health_and_documents_are_served_while_the_broker_works(broker: OutboxBroker, seen: Seen) -> None:
    async with _served(broker) as client:
        assert (await client.get("/health")).status_code == 204
        assert (await client.get("/docs")).status_code == 200
        document = (await client.get("/docs.json")).json()
    assert "orders:Handle" in document["channels"]


@pytest.mark.examines
async def test_health_is_500_when_the_database_is_out_of_reach(table: Table) -> None:
    engine = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/none")
    async with _served(OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None)) as client:
        assert (await client.get("/health")).status_code == 500
    await engine.dispose()


async def test_trying_out_answers_and_for_real_delivers(broker: OutboxBroker, seen: Seen) -> None:
    async with _served(broker) as client:
        answer = await client.post("/docs/try", json=_asked(1, real=False))
        assert (answer.status_code, answer.json()) == (200, 2)
        assert seen == [1]
        assert (await client.post("/docs/try", json=_asked(2, real=True))).status_code == 200
        assert await seen.first(2) == [1, 2]


async def test_trying_out_an_unknown_channel_is_404(broker: OutboxBroker, seen: Seen) -> None:
    async with _served(broker) as client:
        answer = await client.post("/docs/try", json=_asked(1, real=False, channel="nobody:Handle"))
    assert answer.status_code == 404


async def test_trying_out_for_real_without_autocommit_says_what_to_do(engine: AsyncEngine, table: Table) -> None:
    async with _served(OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None)) as client:
        answer = await client.post("/docs/try", json=_asked(1, real=True))
    assert answer.status_code == 500
    assert "autocommit=True" in answer.json()["details"]


async def test_what_others_publish_while_something_is_tried_out_is_not_lost_nor_are_their_timers(
    engine: AsyncEngine, table: Table
) -> None:
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=None, logger=None)
    begun, may_end = asyncio.Event(), asyncio.Event()
    cancelled: list[bool] = []

    async def publish(queue: str, **options: Any) -> None:
        async with AsyncSession(engine) as session, session.begin():
            await broker.publish(1, queue, session=session, **options)

    @broker.subscriber("orders")
    async def handle(body: int) -> None:
        async with AsyncSession(engine) as session, session.begin():
            cancelled.append(await broker.cancel_timer(queue="reminders", timer_id="t", session=session))
        begun.set()
        await may_end.wait()

    await publish("reminders", timer_id="t")
    async with _served(broker) as client:
        trying = asyncio.create_task(client.post("/docs/try", json=_asked(1, real=False)))
        await begun.wait()
        await publish("nobody")
        may_end.set()
        assert (await trying).status_code == 200
    assert cancelled == [False]
    async with engine.connect() as connection:
        rows = await connection.execute(text(f"select queue, timer_id from {table.name} order by id"))
        assert [tuple(row) for row in rows] == [("reminders", "t"), ("nobody", None)]

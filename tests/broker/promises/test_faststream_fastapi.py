"""The same handlers and routes through FastStream's own router for FastAPI and through `faststream_fastapi`."""

from collections.abc import AsyncIterator, Iterator
from logging import Logger
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from faststream.context import ContextRepo
from faststream_fastapi import FastStreamAPI
from sqlalchemy import Engine, Table, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from faststream_outbox.broker import OutboxBroker, OutboxMessage, TestOutboxBroker
from faststream_outbox.fastapi import OutboxRouter
from faststream_outbox.testing import fake_session
from tests.broker.asgi import running
from tests.broker.shop import Order, Shop, orders
from tests.tables import existing
from tests.waiting import eventually


@pytest.fixture
def orders_table(sync_engine: Engine) -> Iterator[Table]:
    with existing(orders, sync_engine) as table:
        yield table


@pytest.fixture
def shop(engine: AsyncEngine, orders_table: Table) -> Shop:
    return Shop(engine)


@pytest.fixture(params=["OutboxRouter", "FastStreamAPI"])
def served(
    request: pytest.FixtureRequest, shop: Shop, engine: AsyncEngine, table: Table, dlq_table: Table
) -> tuple[OutboxBroker, Any]:
    """The broker and the application, not yet started."""
    app = FastAPI()
    if request.param == "OutboxRouter":
        router = OutboxRouter(engine, outbox_table=table, dlq_table=dlq_table)
        router.include_router(shop.handlers())
        app.include_router(router)
        app.include_router(shop.routes(router.broker))
        return router.broker, app
    broker = OutboxBroker(engine, outbox_table=table, dlq_table=dlq_table)
    broker.include_router(shop.handlers())
    app.include_router(shop.routes(broker))
    return broker, FastStreamAPI(broker, application=app)


@pytest.fixture
def broker(served: tuple[OutboxBroker, Any]) -> OutboxBroker:
    return served[0]


@pytest.fixture
async def client(served: tuple[OutboxBroker, Any]) -> AsyncIterator[httpx.AsyncClient]:
    async with running(served[1]) as client:
        yield client


async def publish(broker: OutboxBroker, queue: str, *items: str) -> None:
    async with AsyncSession(broker.engine) as session, session.begin():
        await broker.publish_batch(*(Order(item=item) for item in items), queue=queue, session=session)


async def ordered(engine: AsyncEngine) -> list[str]:
    """What was written into the application's table."""
    async with engine.connect() as connection:
        return list(await connection.scalars(select(orders.c.item).order_by(orders.c.id)))


async def saw(shop: Shop, *items: str) -> dict[str, Any]:
    """The first thing that a handler of orders saw, once they have seen just these, and nothing is left."""

    async def nothing_is_left() -> bool:
        async with shop.engine.connect() as connection:
            return not await connection.scalar(text("select count(*) from outbox"))

    await eventually(lambda: shop.seen)
    await eventually(nothing_is_left)
    assert [seen["order"].item for seen in shop.seen] == [*items]
    return shop.seen[0]


async def test_lifespan_starts_and_stops_the_broker(served: tuple[OutboxBroker, Any]) -> None:
    broker, app = served
    assert not broker.running
    async with running(app):
        assert broker.running
        assert await broker.ping(30.0)
    assert not broker.running


async def test_shortcuts_mix_with_dependencies(client: httpx.AsyncClient, broker: OutboxBroker, shop: Shop) -> None:
    await publish(broker, "mixed", "chair")
    seen = await saw(shop, "chair")
    kinds = {"message": OutboxMessage, "repository": ContextRepo, "logger": Logger, "session": AsyncSession}
    assert {name: isinstance(seen[name], kind) for name, kind in kinds.items()} == dict.fromkeys(kinds, True)
    assert seen["broker"] is broker
    assert seen["client"] is broker.client
    assert seen["producer"] is broker.config.producer
    assert seen["queue"] == "mixed"
    assert seen["has_transaction"]


@pytest.mark.parametrize("is_refused", [False, True])
async def test_route_publishes_in_the_transaction_of_its_dependency(
    client: httpx.AsyncClient, broker: OutboxBroker, shop: Shop, *, is_refused: bool
) -> None:
    answer = await client.post("/orders", json={"item": "chair"}, params={"is_refused": is_refused})
    assert answer.status_code == (409 if is_refused else 200)
    if is_refused:
        await publish(broker, "mixed", "lamp")
    await saw(shop, "lamp" if is_refused else "chair")
    assert await ordered(shop.engine) == ([] if is_refused else ["chair"])


@pytest.mark.parametrize("queue", ["transactional", "responding"])
async def test_handler_that_writes_and_publishes_commits_all_or_nothing(
    client: httpx.AsyncClient, broker: OutboxBroker, shop: Shop, queue: str
) -> None:
    shop.failures_left = 1 if queue == "transactional" else 0
    await publish(broker, queue, "chair")
    await saw(shop, "chair")
    assert shop.failures_left == 0
    assert await ordered(shop.engine) == ["chair"]


async def test_session_without_a_transaction_says_what_to_do(
    client: httpx.AsyncClient, broker: OutboxBroker, dlq_table: Table, shop: Shop
) -> None:
    await publish(broker, "without-transaction", "chair")

    async def error() -> str | None:
        async with shop.engine.connect() as connection:
            found: str | None = await connection.scalar(select(dlq_table.c.error_message))
            return found

    assert "transactional=True" in await eventually(error)
    assert shop.seen == []


async def test_batch_handler_gets_a_list(client: httpx.AsyncClient, broker: OutboxBroker, shop: Shop) -> None:
    await publish(broker, "batches", "chair", "table", "lamp")
    await eventually(lambda: shop.seen)
    (seen,) = shop.seen
    assert [order.item for order in seen["items"]] == ["chair", "table", "lamp"]
    assert len(seen["messages"]) == 3


async def test_handlers_run_under_the_test_broker(broker: OutboxBroker, shop: Shop) -> None:
    async with TestOutboxBroker(broker) as tested:
        await tested.publish(Order(item="chair"), "mixed", session=fake_session())
    assert [seen["order"] for seen in shop.seen] == [Order(item="chair")]
    assert isinstance(shop.seen[0]["message"], OutboxMessage)

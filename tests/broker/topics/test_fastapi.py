"""Topics through FastAPI: its own router, and `faststream_fastapi` with the same handlers."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from faststream_fastapi import FastStreamAPI
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxBroker, TestOutboxBroker
from faststream_outbox import OutboxRouter as HandlerRouter
from faststream_outbox.fastapi import OutboxBatchMessage, OutboxMessage, OutboxRouter, OutboxSession
from faststream_outbox.fastapi import OutboxBroker as BrokerOfHandler
from faststream_outbox.testing import fake_session
from tests.broker.asgi import running
from tests.broker.topics.stage import Stage


class Order(BaseModel):
    id: int


def _handlers(stage: Stage) -> HandlerRouter:
    router = HandlerRouter(prefix="shop.")

    async def opened() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(stage.engine) as session, session.begin():
            yield session

    @router.publisher(topic="bills", key="bill-1")
    @router.subscriber(topic="orders", group="billing")
    async def bill(
        order: Order, message: OutboxMessage, session: Annotated[AsyncSession, Depends(opened)]
    ) -> dict[str, int]:
        await stage.write(session, order.id)
        stage.seen.append(("billing", order.id, message.raw_message.queue))
        return {"id": order.id + 1}

    @router.subscriber(topic="bills", group="mail", transactional=True)
    async def mail(order: Order, session: OutboxSession, broker: BrokerOfHandler) -> None:
        await stage.write(session, order.id)
        await broker.publish(order, "mails")
        stage.seen.append(("mail", order.id))

    @router.subscriber(topic="batches", group="billing", batch=True)
    async def batches(orders: list[Order], message: OutboxBatchMessage) -> None:
        stage.seen.append(([order.id for order in orders], len(message.messages)))

    return router


@pytest.fixture
def router(stage: Stage) -> OutboxRouter:
    return OutboxRouter(
        stage.engine, outbox_table=stage.table, dlq_table=None, log_tables=stage.log_tables, logger=None
    )


@pytest.fixture(params=["OutboxRouter", "FastStreamAPI"])
def served(request: pytest.FixtureRequest, stage: Stage) -> tuple[OutboxBroker, Any]:
    """The broker and the application, not yet started."""
    app = FastAPI()
    if request.param == "OutboxRouter":
        router: OutboxRouter = request.getfixturevalue("router")
        router.include_router(_handlers(stage))
        app.include_router(router)
        return router.broker, app
    stage.broker.include_router(_handlers(stage))
    return stage.broker, FastStreamAPI(stage.broker, application=app)


async def test_handlers_of_topics_run_with_fastapis_dependencies(
    served: tuple[OutboxBroker, Any], stage: Stage
) -> None:
    async with running(served[1]):
        await stage.publish({"id": 1}, topic="shop.orders", key="order-1")
        await stage.caught_up(topic="shop.orders")
        await stage.caught_up("mail", "shop.bills")
    assert stage.seen == [("billing", 1, "shop.orders"), ("mail", 2)]
    assert await stage.effect_numbers() == [1, 2]
    assert await stage.in_queue("mails") == [b'{"id":2}']


async def test_batch_handler_gets_a_list(served: tuple[OutboxBroker, Any], stage: Stage) -> None:
    await stage.publish({"id": 1}, {"id": 2}, topic="shop.batches", key="a")
    async with running(served[1]):
        assert await stage.saw(1) == [([1, 2], 2)]


async def test_handlers_run_under_the_test_broker(served: tuple[OutboxBroker, Any], stage: Stage) -> None:
    async with TestOutboxBroker(served[0]) as tested:
        await tested.publish_batch({"id": 1}, {"id": 2}, topic="shop.batches", session=fake_session())
    assert stage.seen == [([1, 2], 2)]


async def test_handler_registered_on_the_router_itself(router: OutboxRouter, stage: Stage) -> None:
    async def greeting() -> str:
        return "hello"

    @router.subscriber(topic="orders", group="billing")
    @router.publisher(topic="bills")
    async def handle(order: Order, greeting: Annotated[str, Depends(greeting)]) -> Order:
        stage.seen.append((order.id, greeting))
        return order

    app = FastAPI()
    app.include_router(router)
    async with running(app) as client:
        async with AsyncSession(stage.engine) as session, session.begin():
            await router.broker.publish(Order(id=1), topic="orders", key="order-1", session=session)
        assert await stage.saw(1) == [(1, "hello")]
        await stage.caught_up(topic="orders")
        document = (await client.get("/asyncapi.json")).json()
    assert sorted(channel["address"] for channel in document["channels"].values()) == ["bills", "orders"]
    assert [row["body"] for row in await stage.in_log("bills")] == [b'{"id":1}']


async def test_options_of_the_subscriber_reach_it(router: OutboxRouter) -> None:
    subscriber = router.subscriber(topic="orders", group="billing", max_workers=3, on_dead="block", transactional=True)
    assert (subscriber.group, subscriber.queues) == ("billing", ("orders",))
    assert (subscriber.options.max_workers, subscriber.options.on_dead) == (3, "block")
    assert subscriber.is_transactional

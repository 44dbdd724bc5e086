"""`OutboxRouter` of FastAPI: its options, its own ways to register, and what FastAPI adds to a handler."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI
from fastapi import params as fastapi_params
from pydantic import BaseModel
from sqlalchemy import Table, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from typing_extensions import Unpack

from faststream_outbox import annotations
from faststream_outbox import fastapi as shortcuts
from faststream_outbox._internal.broker.options import PublisherOptions, SubscriberOptions
from faststream_outbox._internal.events.types import Died, Handled
from faststream_outbox._internal.outcomes.retry import NoRetry
from faststream_outbox.broker import OutboxBroker
from faststream_outbox.fastapi import Context, OutboxMessage, OutboxRouter
from tests.broker.asgi import running
from tests.cases import each
from tests.queue.witness import Witness
from tests.waiting import eventually

NOT_FOR_FASTAPI = {"routers", "apply_types", "provider", "tags", "dependencies"}
"""FastAPI resolves dependencies, `include_router` takes routers, and the broker's tags are `specification_tags`."""


class Order(BaseModel):
    item: str
    secret: str = ""


@pytest.fixture
def router(engine: AsyncEngine, table: Table, dlq_table: Table) -> OutboxRouter:
    return OutboxRouter(engine, outbox_table=table, dlq_table=dlq_table)


@pytest.fixture
def app(router: OutboxRouter) -> FastAPI:
    return FastAPI()


async def publish(router: OutboxRouter, body: Any) -> None:
    async with AsyncSession(router.broker.client.engine) as session, session.begin():
        await router.broker.publish(body, "orders", session=session)


async def served(app: FastAPI, router: OutboxRouter, body: Any, until: type[Any] = Handled, **fields: Any) -> None:
    """Run the application until a message has come so far."""
    witness = Witness()
    router.broker.client.events.subscribe(witness)
    app.include_router(router)
    async with running(app):
        await publish(router, body)
        await witness.wait(until, **fields)


def options(function: Callable[..., Any]) -> dict[str, Any]:
    return {name: value.default for name, value in inspect.signature(function).parameters.items() if name != "self"}


def test_every_option_of_the_broker_is_there_with_its_default() -> None:
    ours = options(OutboxRouter.__init__)
    for name, default in options(OutboxBroker.__init__).items():
        if name not in NOT_FOR_FASTAPI:
            assert ours[name] == default, name


@each(("method", "declared"), [("subscriber", SubscriberOptions), ("publisher", PublisherOptions)])
def test_registering_takes_the_options_of_the_broker(method: str, declared: Any) -> None:
    assert getattr(OutboxRouter, method).__annotations__["options"] == Unpack[declared]


def test_options_of_the_subscriber_reach_it(router: OutboxRouter) -> None:
    subscriber = router.subscriber(
        "orders", max_workers=3, lease_ttl_seconds=99.0, max_deliveries=7, transactional=True
    )
    taken = subscriber.options
    assert (taken.max_workers, taken.lease_ttl_seconds, taken.max_deliveries) == (3, 99.0, 7)
    assert subscriber.is_transactional


def test_every_shortcut_of_plain_handlers_has_its_like() -> None:
    assert set(annotations.__all__) - {"NoCast"} <= set(shortcuts.__all__)


def test_shortcuts_resolve_without_a_thread() -> None:
    dependency = Context("message")
    assert isinstance(dependency, fastapi_params.Depends)
    assert inspect.iscoroutinefunction(dependency.dependency)


async def test_handler_registered_on_the_router_shares_dependencies_with_routes(
    router: OutboxRouter, app: FastAPI
) -> None:
    seen: list[Any] = []

    async def greeting() -> str:
        return "hello"

    Greeting = Annotated[str, Depends(greeting)]  # noqa: N806

    @router.subscriber("orders")
    async def handle(order: Order, message: OutboxMessage, greeting: Greeting) -> None:
        seen.append((order.item, message.raw_message.queue, greeting))

    @router.get("/greeting")
    async def get(greeting: Greeting) -> str:
        return greeting

    witness = Witness()
    router.broker.client.events.subscribe(witness)
    app.include_router(router)
    async with running(app) as client:
        assert (await client.get("/greeting")).json() == "hello"
        await publish(router, Order(item="chair"))
        await witness.wait(Handled)
    assert seen == [("chair", "orders", "hello")]


async def test_overridden_dependency_is_used_by_handlers(router: OutboxRouter, app: FastAPI) -> None:
    seen: list[str] = []

    async def price() -> str:
        return "real"

    @router.subscriber("orders")
    async def handle(order: Order, price: Annotated[str, Depends(price)]) -> None:
        seen.append(price)

    app.dependency_overrides[price] = lambda: "for tests"
    await served(app, router, Order(item="chair"))
    assert seen == ["for tests"]


async def test_dependencies_of_router_and_subscriber_run_for_each_message(
    engine: AsyncEngine, table: Table, app: FastAPI
) -> None:
    seen: list[str] = []

    async def of_router() -> None:
        seen.append("router")

    async def of_subscriber() -> None:
        seen.append("subscriber")

    router = OutboxRouter(engine, outbox_table=table, dlq_table=None, dependencies=[Depends(of_router)])

    @router.subscriber("orders", dependencies=[Depends(of_subscriber)])
    async def handle(order: Order) -> None:
        seen.append("handler")

    await served(app, router, Order(item="chair"))
    assert seen == ["router", "subscriber", "handler"]


async def test_published_result_has_the_shape_of_the_response_model(router: OutboxRouter, app: FastAPI) -> None:
    seen: list[Any] = []

    @router.subscriber("orders", response_model=Order, response_model_exclude={"secret"})
    @router.publisher("placed")
    async def handle(order: Order) -> Order:
        return order

    @router.subscriber("placed")
    async def placed(message: OutboxMessage) -> None:
        seen.append(await message.decode())

    await served(app, router, Order(item="chair", secret="discount"), queue="placed")
    assert seen == [{"item": "chair"}]


async def test_body_of_the_wrong_shape_fails_the_message(
    router: OutboxRouter, app: FastAPI, engine: AsyncEngine, dlq_table: Table
) -> None:
    @router.subscriber("orders", retry_strategy=NoRetry())
    async def handle(order: Order) -> None:
        pytest.fail("must not run")

    await served(app, router, {"price": 3}, until=Died)
    async with engine.connect() as connection:
        assert (await connection.scalar(select(dlq_table.c.error_type)) or "").endswith("RequestValidationError")


async def test_handlers_are_in_the_asyncapi_document(router: OutboxRouter, app: FastAPI) -> None:
    @router.subscriber("orders", title="Orders")
    async def handle(order: Order) -> None: ...

    app.include_router(router)
    async with running(app) as client:
        document = (await client.get("/asyncapi.json")).json()
    assert [channel["address"] for channel in document["channels"].values()] == ["orders"]
    assert set(document["components"]["schemas"]["Order"]["properties"]) == {"item", "secret"}


async def test_stopping_lets_a_running_handler_finish(
    router: OutboxRouter, app: FastAPI, engine: AsyncEngine, table: Table
) -> None:
    started = asyncio.Event()
    finished: list[str] = []

    @router.subscriber("orders")
    async def handle(order: Order) -> None:
        started.set()
        await eventually(lambda: not any(subscriber.worker for subscriber in router.broker.subscribers))
        finished.append(order.item)

    app.include_router(router)
    async with running(app):
        await publish(router, Order(item="chair"))
        await started.wait()
        assert finished == []
    assert finished == ["chair"]
    async with engine.connect() as connection:
        assert (await connection.execute(select(table.c.id))).all() == []

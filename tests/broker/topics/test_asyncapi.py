"""Topics in AsyncAPI documents, over HTTP, and in health checks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from faststream import FastStream
from faststream.asgi import AsgiFastStream, AsyncAPIRoute, make_ping_asgi
from faststream.specification import AsyncAPI
from pydantic import BaseModel

from faststream_outbox import OutboxBroker
from tests.broker.asgi import running
from tests.broker.topics.stage import Stage
from tests.waiting import eventually


class Order(BaseModel):
    id: int


@pytest.fixture(params=["2.6.0", "3.0.0"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _document(broker: OutboxBroker, version: str) -> dict[str, Any]:
    app = FastStream(broker, specification=AsyncAPI(schema_version=version))
    document: dict[str, Any] = app.schema.to_specification().to_jsonable()
    return document


def test_subscriber_is_a_channel_named_after_topic_and_handler(broker: OutboxBroker, version: str) -> None:
    @broker.subscriber(topic="orders", group="billing", description="what it does")
    async def handle(body: Order) -> None: ...

    document = _document(broker, version)
    ((name, channel),) = document["channels"].items()
    assert name == "orders:Handle"
    assert channel["description"] == "what it does"
    assert channel.get("address", "orders") == "orders"
    assert "Order" in document["components"]["schemas"]


def test_groups_of_one_topic_are_channels_of_their_own(broker: OutboxBroker, version: str) -> None:
    @broker.subscriber(topic="orders", group="billing")
    async def bill(body: Order) -> None: ...

    @broker.subscriber(topic="orders", group="mail")
    async def mail(body: Order) -> None: ...

    assert sorted(_document(broker, version)["channels"]) == ["orders:Bill", "orders:Mail"]


@asynccontextmanager
async def _served(broker: OutboxBroker) -> AsyncGenerator[httpx.AsyncClient, None]:
    app = AsgiFastStream(
        broker,
        asgi_routes=[("/health", make_ping_asgi(broker, timeout=30.0))],
        asyncapi_path=AsyncAPIRoute("/docs"),
        logger=None,
    )
    async with running(app) as client:
        yield client


def _asked(message: Any, *, real: bool) -> dict[str, Any]:
    return {"channelName": "orders:Handle", "message": {"message": message}, "options": {"sendToRealBroker": real}}


@pytest.fixture
def served(stage: Stage) -> OutboxBroker:
    broker = stage.replace(autocommit=True)

    stage.reads(returns=lambda body: body + 1)
    return broker


async def test_health_is_500_when_a_loop_of_the_log_is_dead(served: OutboxBroker) -> None:
    async with _served(served) as client:
        await eventually(lambda: served.running)
        assert (await client.get("/health")).status_code == 204
        await served.log._services[0].stop()
        assert (await client.get("/health")).status_code == 500


async def test_ping_says_no_when_a_consumer_is_dead(served: OutboxBroker) -> None:
    for start in (served.connect, served.start):
        await start()
        assert await served.ping(30.0)
    (subscriber,) = served.subscribers
    worker: Any = subscriber.worker  # type: ignore[attr-defined]
    await worker.consumers[0]._service.stop()
    assert not await served.ping(30.0)


async def test_trying_out_answers_with_what_the_handler_returns(served: OutboxBroker, stage: Stage) -> None:
    async with _served(served) as client:
        answer = await client.post("/docs/try", json=_asked(1, real=False))
    assert (answer.status_code, answer.json()) == (200, 2)
    assert stage.seen == [1]
    assert await stage.in_log() == []

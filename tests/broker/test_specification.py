"""The AsyncAPI documents, in both versions."""

from typing import Any

import pytest
from faststream import FastStream
from faststream.specification import AsyncAPI
from pydantic import BaseModel
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from faststream_outbox import OutboxBroker, OutboxRoute, OutboxRoutePublisher, OutboxRouter, make_outbox_table
from faststream_outbox.annotations import OutboxMessage, OutboxSession

DSN = "postgresql+asyncpg://scott:t1ger@db.example:5433/shop?ssl=require"


class Order(BaseModel):
    id: int


def _broker(**options: Any) -> OutboxBroker:
    return OutboxBroker(create_async_engine(DSN), outbox_table=make_outbox_table(MetaData()), **options)


def _document(broker: OutboxBroker, version: str) -> dict[str, Any]:
    app = FastStream(broker, specification=AsyncAPI(schema_version=version))
    document: dict[str, Any] = app.schema.to_specification().to_jsonable()
    return document


@pytest.fixture(params=["2.6.0", "3.0.0"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_server_is_the_database_without_credentials(version: str) -> None:
    document = _document(_broker(description="our outbox", tags=[{"name": "internal"}], protocol_version="18"), version)
    (server,) = document["servers"].values()
    address = server.get("url") or f"postgresql://{server['host']}{server.get('pathname', '')}"
    assert (address, server["protocol"]) == ("postgresql://db.example:5433/shop", "postgresql")
    said = (server["description"], server["tags"], server["protocolVersion"])
    assert said == ("our outbox", [{"name": "internal"}], "18")
    for secret in ("t1ger", "scott"):
        assert secret not in str(document)


def test_specification_url_replaces_the_address(version: str) -> None:
    text = str(_document(_broker(specification_url="postgresql://public.example/shop"), version))
    assert "public.example" in text
    assert "db.example" not in text


def test_subscriber_is_a_channel_named_after_queue_and_handler(version: str) -> None:
    broker = _broker()

    @broker.subscriber("orders", description="what it does")
    async def handle(body: Order) -> None: ...

    document = _document(broker, version)
    ((name, channel),) = document["channels"].items()
    assert name == "orders:Handle"
    assert channel["description"] == "what it does"
    assert channel.get("address", "orders") == "orders"
    assert "Order" in document["components"]["schemas"]


@pytest.mark.parametrize(
    ("queues", "options", "names"),
    [
        ("orders", {"title": "Incoming"}, ["Incoming"]),
        (["orders", "bills"], {}, ["bills:Handle", "orders:Handle"]),
        (["orders", "bills"], {"title": "Incoming"}, ["Incoming:bills", "Incoming:orders"]),
    ],
)
def test_each_queue_is_a_channel_under_its_name_or_title(
    version: str, queues: Any, options: dict[str, Any], names: list[str]
) -> None:
    broker = _broker()

    @broker.subscriber(queues, **options)
    async def handle(body: int) -> None: ...

    assert sorted(_document(broker, version)["channels"]) == names


@pytest.mark.parametrize("is_decorator", [False, True])
def test_publisher_is_a_channel_whose_schema_is_its_own_or_the_handlers(version: str, *, is_decorator: bool) -> None:
    async def handle(body: int) -> Order:
        return Order(id=body)

    broker = _broker()
    publisher = broker.publisher("bills", schema=None if is_decorator else Order, description="what it says")
    if is_decorator:
        publisher(broker.subscriber("orders")(handle))
    document = _document(broker, version)
    assert sorted(document["channels"]) == ["bills:Publisher", *["orders:Handle"] * is_decorator]
    assert document["channels"]["bills:Publisher"]["description"] == "what it says"
    assert "Order" in document["components"]["schemas"]


def test_prefixes_are_part_of_the_names(version: str) -> None:
    async def handle(body: int) -> int:
        return body

    inner = OutboxRouter(
        prefix="b.", handlers=[OutboxRoute(handle, "orders", publishers=[OutboxRoutePublisher("bills")])]
    )
    broker = _broker(routers=[OutboxRouter(prefix="a.", routers=[inner])])
    assert sorted(_document(broker, version)["channels"]) == ["a.b.bills:Publisher", "a.b.orders:Handle"]


def test_what_is_left_out_is_left_out(version: str) -> None:
    broker = _broker()
    router = OutboxRouter(include_in_schema=False)

    @broker.subscriber("orders", include_in_schema=False)
    @router.subscriber("bills")
    async def handle(body: int) -> None: ...

    broker.publisher("mails", include_in_schema=False)
    broker.include_router(router)
    assert _document(broker, version)["channels"] == {}


def test_batch_handler_is_described_by_its_list(version: str) -> None:
    broker = _broker()

    @broker.subscriber("orders", batch=True)
    async def handle(bodies: list[Order]) -> None: ...

    assert "Order" in _document(broker, version)["components"]["schemas"]


def test_injected_parameters_are_not_part_of_the_body(version: str) -> None:
    broker = _broker()

    @broker.subscriber("orders", transactional=True)
    async def handle(body: Order, message: OutboxMessage, session: OutboxSession) -> None: ...

    document = _document(broker, version)
    assert "message" not in str(document["components"]["schemas"])
    assert "session" not in str(document)

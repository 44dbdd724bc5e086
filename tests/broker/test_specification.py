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


def test_server_is_the_database(version: str) -> None:
    (server,) = _document(_broker(), version)["servers"].values()
    address = server.get("url") or f"postgresql://{server['host']}{server.get('pathname', '')}"
    assert address == "postgresql://db.example:5433/shop"
    assert server["protocol"] == "postgresql"


def test_document_has_no_credentials(version: str) -> None:
    text = str(_document(_broker(), version))
    assert "t1ger" not in text
    assert "scott" not in text


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


def test_title_replaces_the_name(version: str) -> None:
    broker = _broker()

    @broker.subscriber("orders", title="Incoming")
    async def handle(body: int) -> None: ...

    assert [*_document(broker, version)["channels"]] == ["Incoming"]


def test_several_queues_are_several_channels(version: str) -> None:
    broker = _broker()

    @broker.subscriber(["orders", "bills"])
    async def handle(body: int) -> None: ...

    assert sorted(_document(broker, version)["channels"]) == ["bills:Handle", "orders:Handle"]


def test_several_queues_with_a_title_are_several_channels(version: str) -> None:
    broker = _broker()

    @broker.subscriber(["orders", "bills"], title="Incoming")
    async def handle(body: int) -> None: ...

    assert len(_document(broker, version)["channels"]) == 2


def test_publisher_is_a_channel(version: str) -> None:
    broker = _broker()
    broker.publisher("bills", schema=Order, description="what it says")
    document = _document(broker, version)
    ((name, channel),) = document["channels"].items()
    assert name == "bills:Publisher"
    assert channel["description"] == "what it says"
    assert "Order" in document["components"]["schemas"]


def test_publisher_takes_its_schema_from_the_handler(version: str) -> None:
    broker = _broker()

    @broker.publisher("bills")
    @broker.subscriber("orders")
    async def handle(body: int) -> Order:
        return Order(id=body)

    document = _document(broker, version)
    assert sorted(document["channels"]) == ["bills:Publisher", "orders:Handle"]
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

    text = str(_document(broker, version))
    assert "message" not in str(_document(broker, version)["components"]["schemas"])
    assert "session" not in text


def test_description_and_tags_of_the_broker_are_shown(version: str) -> None:
    broker = _broker(description="our outbox", tags=[{"name": "internal"}], protocol_version="18")
    (server,) = _document(broker, version)["servers"].values()
    assert (server["description"], server["tags"], server["protocolVersion"]) == (
        "our outbox",
        [{"name": "internal"}],
        "18",
    )

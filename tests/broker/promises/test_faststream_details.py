"""What FastStream's own brokers do in passing, and users of several brokers expect of this one too."""

import inspect
import json
from typing import Any

import pytest
from faststream import BaseMiddleware, FastStream
from faststream.kafka.opentelemetry import KafkaTelemetryMiddleware
from faststream.nats import NatsBroker
from faststream.specification import AsyncAPI
from sqlalchemy import MetaData

from faststream_outbox import OutboxBroker, OutboxRouter, make_outbox_table
from faststream_outbox.annotations import OutboxSession
from faststream_outbox.opentelemetry import OutboxTelemetryMiddleware
from tests.broker.effects import EffectsShop


class Mine(BaseMiddleware):
    pass


def _broker(**options: Any) -> OutboxBroker:
    return OutboxBroker(outbox_table=make_outbox_table(MetaData()), dlq_table=None, logger=None, **options)


def test_middlewares_of_a_broker_stand_where_they_were_put() -> None:
    class First(Mine): ...

    class Last(Mine): ...

    assert list(_broker().middlewares) == []
    broker = _broker(middlewares=[Mine])
    assert list(broker.middlewares) == [Mine]
    broker.insert_middleware(First)
    broker.add_middleware(Last)
    assert list(broker.middlewares) == [First, Mine, Last]


async def test_transaction_of_a_handler_does_not_depend_on_the_list_of_middlewares(shop: EffectsShop) -> None:
    shop.broker.config.broker_config.broker_middlewares = ()

    @shop.broker.subscriber("orders", transactional=True)
    async def write(number: int, session: OutboxSession) -> None:
        await shop.write(session, number)

    await shop.deliver(7)
    await shop.becomes(effects=[7])


@pytest.mark.parametrize("version", ["2.6.0", "3.0.0"])
@pytest.mark.parametrize("title", ["/", "orders/new", None])
def test_slash_in_a_title_or_a_name_is_written_as_faststream_writes_it(title: str | None, version: str) -> None:
    documents = []
    for broker, router in ((NatsBroker(), None), (_broker(), OutboxRouter(prefix="shop/"))):
        taking: Any = broker if router is None else router
        prefix = "shop/" if router is None else ""

        @taking.subscriber(f"{prefix}orders/new", title=title)
        @taking.publisher(f"{prefix}letters/new", title=title and f"{title}!")
        async def handle(body: int) -> str:
            return ""

        if router is not None:
            broker.include_router(router)  # type: ignore[arg-type]
        app = FastStream(broker, specification=AsyncAPI(schema_version=version))
        document = app.schema.to_specification().to_jsonable()
        for channel in document["channels"].values():
            channel.pop("bindings", None)
        documents.append(json.dumps({**document, "servers": None}, sort_keys=True))
    assert documents[0] == documents[1]


def test_messages_are_counted_as_by_faststreams_brokers_with_batches() -> None:
    ours, theirs = (
        inspect.signature(middleware).parameters["include_messages_counters"].default
        for middleware in (OutboxTelemetryMiddleware, KafkaTelemetryMiddleware)
    )
    assert ours == theirs

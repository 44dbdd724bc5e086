"""Parameters of handlers that name what the broker gives, and those that name raw classes."""

import logging
from typing import Annotated, Any

import pytest
from faststream import Context, ContextRepo, Depends, FastStream, UnderlyingDriverAnnotation
from faststream.exceptions import SetupError
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxBroker as Broker
from faststream_outbox import OutboxMessage as Message
from faststream_outbox import annotations
from faststream_outbox._internal.broker.producer import OutboxProducer
from faststream_outbox._internal.queue.client import OutboxClient
from tests.broker.conformance.ways import Seen, Way


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (annotations.OutboxMessage, Message),
        (annotations.OutboxBroker, Broker),
        (annotations.OutboxClient, OutboxClient),
        (annotations.OutboxProducer, OutboxProducer),
        (annotations.ContextRepo, object),
        (Annotated[Any, Context("message")], Message),
    ],
    ids=["message", "broker", "client", "producer", "context", "FastStream's Context"],
)
async def test_annotated_parameter_is_given(way: Way, seen: Seen, annotation: Any, kind: type) -> None:
    broker = way.broker()

    async def handle(body: int, given: Any) -> None:
        seen(given)

    handle.__annotations__["given"] = annotation
    broker.subscriber("orders")(handle)
    async with way.running(broker):
        await way.publish(1, "orders")
        (given,) = await seen.first()
    assert isinstance(given, kind)


async def test_logger_is_given(way: Way, seen: Seen) -> None:
    log = logging.getLogger("tests.broker")
    broker = way.broker(logger=log)

    @broker.subscriber("orders")
    async def handle(body: int, logger: annotations.Logger) -> None:
        seen(logger)

    async with way.running(broker):
        await way.publish(1, "orders")
        (given,) = await seen.first()
    assert given is not None


async def test_annotated_parameter_of_a_sync_handler_is_given(way: Way) -> None:
    broker = way.broker()
    seen: list[Any] = []

    @broker.subscriber("orders")
    def handle(body: int, message: annotations.OutboxMessage) -> None:
        seen.append(message.raw_message.queue)

    async with way.running(broker):
        await way.publish(1, "orders")
        await way.empty()
    assert seen == ["orders"]


async def test_annotated_parameter_of_a_dependency_is_given(way: Way, seen: Seen) -> None:
    async def queue_of(message: annotations.OutboxMessage) -> str:
        return message.raw_message.queue

    broker = way.broker()

    @broker.subscriber("orders")
    async def handle(body: int, queue: Annotated[str, Depends(queue_of)]) -> None:
        seen(queue)

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == ["orders"]


@pytest.mark.parametrize(
    ("raw", "name"), [(Broker, "OutboxBroker"), (Message, "OutboxMessage"), (AsyncSession, "OutboxSession")]
)
async def test_raw_class_fails_at_start_with_the_import_to_use(way: Way, raw: type, name: str) -> None:
    broker = way.broker()

    async def handle(body: int, given: Any) -> None: ...

    handle.__annotations__["given"] = raw
    broker.subscriber("orders")(handle)
    with pytest.raises(SetupError, match=f"from faststream_outbox.annotations import {name}"):
        async with way.running(broker):
            pass


async def test_application_may_name_annotations_of_its_own(way: Way) -> None:
    class Driver: ...

    hint = UnderlyingDriverAnnotation(type_hint=Any, module="shop.annotations", name="OurDriver")
    broker = way.broker(underlying_driver_annotations={Driver: hint})

    async def handle(body: int, given: Any) -> None: ...

    handle.__annotations__["given"] = Driver
    broker.subscriber("orders")(handle)
    with pytest.raises(SetupError, match=r"shop\.annotations"):
        async with way.running(broker):
            pass


async def test_values_of_broker_and_application_are_given(way: Way, seen: Seen) -> None:
    of_broker, of_app = ContextRepo(), ContextRepo()
    of_broker.set_global("tenant", "a")
    of_app.set_global("region", "eu")
    broker = way.broker(context=of_broker)
    FastStream(broker, context=of_app, logger=None)

    @broker.subscriber("orders")
    async def handle(
        body: int,
        tenant: Annotated[str, annotations.Context("tenant")],
        region: Annotated[str, annotations.Context("region")],
        missing: Annotated[str, annotations.Context("missing", default="none")],
    ) -> None:
        seen(tenant, region, missing)

    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == [("a", "eu", "none")]


async def test_deep_value_of_the_context_is_given(way: Way, seen: Seen) -> None:
    broker = way.broker()

    @broker.subscriber("orders")
    async def handle(body: int, tenant: Annotated[str, annotations.Context("message.headers.tenant")]) -> None:
        seen(tenant)

    async with way.running(broker):
        await way.publish(1, "orders", headers={"tenant": "a"})
        assert await seen.first() == ["a"]

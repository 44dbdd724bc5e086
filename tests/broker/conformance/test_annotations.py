"""Parameters of handlers that name what the broker gives, and those that name raw classes."""

import logging
from typing import Annotated, Any

import pytest
from faststream import Context, Depends, FastStream, UnderlyingDriverAnnotation
from faststream.context import ContextRepo
from faststream.exceptions import SetupError
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import OutboxBroker as Broker
from faststream_outbox import OutboxMessage as Message
from faststream_outbox import annotations
from faststream_outbox._internal.broker.producer import OutboxProducer
from faststream_outbox._internal.queue.client import OutboxClient
from tests.broker.conformance.ways import Seen, Way

GIVEN: list[tuple[Any, type]] = [
    (annotations.OutboxMessage, Message),
    (annotations.OutboxBroker, Broker),
    (annotations.OutboxClient, OutboxClient),
    (annotations.OutboxProducer, OutboxProducer),
    (annotations.ContextRepo, ContextRepo),
    # That of a test broker is a mock.
    (annotations.Logger, object),
    (Annotated[Any, Context("message")], Message),
]


def _taking(seen: Seen, annotation: Any) -> Any:
    """A handler with a parameter of that annotation."""

    async def handle(body: Any, given: Any) -> None:
        seen(given)

    handle.__annotations__["given"] = annotation
    return handle


async def test_annotated_parameter_is_given(way: Way, seen: Seen) -> None:
    broker = way.broker(logger=logging.getLogger("tests.broker"))
    for number, (annotation, _) in enumerate(GIVEN):
        broker.subscriber(f"orders-{number}")(_taking(seen, annotation))
    async with way.running(broker):
        for number, (_, kind) in enumerate(GIVEN):
            await way.publish(1, f"orders-{number}")
            given = (await seen.first(number + 1))[-1]
            assert given is not None, kind
            assert isinstance(given, kind), kind


async def test_annotated_parameter_of_a_sync_handler_is_given(way: Way, broker: Broker) -> None:
    seen: list[Any] = []

    @broker.subscriber("orders")
    def handle(body: int, message: annotations.OutboxMessage) -> None:
        seen.append((body, message.raw_message.queue))

    async with way.running(broker):
        await way.publish(1, "orders")
        await way.empty()
    assert seen == [(1, "orders")]


async def test_annotated_parameter_of_a_dependency_is_given(way: Way, broker: Broker, seen: Seen) -> None:
    async def queue_of(message: annotations.OutboxMessage) -> str:
        return message.raw_message.queue

    broker.subscriber("orders")(_taking(seen, Annotated[str, Depends(queue_of)]))
    async with way.running(broker):
        await way.publish(1, "orders")
        assert await seen.first() == ["orders"]


class Driver:
    """A class that an application has an annotation of its own for."""


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (Broker, "from faststream_outbox.annotations import OutboxBroker"),
        (Message, "from faststream_outbox.annotations import OutboxMessage"),
        (AsyncSession, "from faststream_outbox.annotations import OutboxSession"),
        (Driver, r"shop\.annotations"),
    ],
)
async def test_raw_class_fails_at_start_with_the_import_to_use(way: Way, seen: Seen, raw: type, said: str) -> None:
    hint = UnderlyingDriverAnnotation(type_hint=Any, module="shop.annotations", name="OurDriver")
    broker = way.broker(underlying_driver_annotations={Driver: hint})
    broker.subscriber("orders")(_taking(seen, raw))
    with pytest.raises(SetupError, match=said):
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
        deep: Annotated[str, annotations.Context("message.headers.tenant")],
        missing: Annotated[str, annotations.Context("missing", default="none")],
    ) -> None:
        seen(tenant, region, deep, missing)

    async with way.running(broker):
        await way.publish(1, "orders", headers={"tenant": "b"})
        assert await seen.first() == [("a", "eu", "b", "none")]

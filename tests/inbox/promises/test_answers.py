"""A request that comes again gets the same answer, from every broker; nobody hears of what is not committed."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from faststream import Response
from faststream.nats import NatsBroker, NatsRouter, TestNatsBroker
from faststream.rabbit import RabbitBroker, RabbitResponse, TestRabbitBroker
from faststream.rabbit.message import RabbitMessage
from faststream.redis import RedisBroker, TestRedisBroker
from pydantic import BaseModel
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import OutboxBroker, events, make_outbox_table
from faststream_outbox._internal.inbox.middleware import answer_of, response_of
from faststream_outbox.annotations import InboxSession
from faststream_outbox.errors import InvalidOption
from faststream_outbox.inbox import Answer
from tests.cases import case
from tests.inbox.conftest import Scene
from tests.tables import existing


class Invoice(BaseModel):
    number: int


ANSWERS = {
    "json": lambda number: {"number": number},
    "text": lambda number: f"number {number}",
    "bytes": lambda number: b"\x00" + str(number).encode(),
    "nothing": lambda number: None,
    "model": lambda number: Invoice(number=number),
    "headers": lambda number: Response({"number": number}, headers={"x-number": str(number)}),
}


FAMILIES: dict[str, tuple[Any, Any, Callable[[str], dict[str, Any]]]] = {
    "nats": (NatsBroker, TestNatsBroker, lambda id_: {"headers": {"message_id": id_}}),
    "rabbit": (RabbitBroker, TestRabbitBroker, lambda id_: {"message_id": id_}),
    "redis": (RedisBroker, TestRedisBroker, lambda id_: {"headers": {"message_id": id_}}),
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_request_that_comes_again_gets_the_same_answer(scene: Scene, family: str) -> None:
    make, test, named = FAMILIES[family]
    broker = make(middlewares=[scene.inbox(keep_response=True).middleware])
    numbers = count(1)

    @broker.subscriber("orders")
    async def bill(kind: str, session: InboxSession) -> Any:
        await scene.write(session, kind)
        return ANSWERS[kind](next(numbers))

    async with test(broker):
        for number, kind in enumerate(ANSWERS, start=1):
            with case(kind):
                first, again = [await broker.request(kind, "orders", timeout=30.0, **named(kind)) for _ in range(2)]
                assert (first.body, first.content_type) == (again.body, again.content_type)
                assert await first.decode() == await again.decode()
                header = str(number) if kind == "headers" else None
                assert first.headers.get("x-number") == again.headers.get("x-number") == header
    assert await scene.written() == sorted(ANSWERS)
    assert scene.count(events.ResponseReplayed) == len(ANSWERS)


def test_content_type_of_a_response_stands_where_rabbitmq_has_it() -> None:
    subscriber = RabbitBroker().subscriber("orders")
    message = RabbitMessage(object(), b"", message_id="m1")  # type: ignore[arg-type]
    answer = answer_of(RabbitResponse(b"<a/>", content_type="text/xml", headers={"a": "b"}), subscriber)
    assert answer == Answer(b"<a/>", "text/xml", {"a": "b"})
    command: Any = response_of(answer, message).as_publish_command()
    assert (command.body, command.headers, command.message_options["content_type"]) == (b"<a/>", {"a": "b"}, "text/xml")


async def test_answer_is_given_after_the_commit(scene: Scene) -> None:
    router = NatsRouter(middlewares=[scene.inbox(keep_response=True).middleware])
    committed: list[int] = []

    @router.subscriber("orders")
    @router.publisher("billed")
    async def bill(order: str) -> str:
        return order

    broker = NatsBroker(routers=[router])

    @broker.subscriber("billed", no_reply=True)
    async def hear(order: str) -> None:
        committed.append(len(await scene.receipts()))

    async with TestNatsBroker(broker):
        await broker.publish("chair", "orders", headers={"message_id": "m1"})
    assert committed == [1]


async def test_publisher_of_the_outbox_cannot_be_behind_a_kept_answer(
    scene: Scene, engine: AsyncEngine, builder: Engine
) -> None:
    with existing(make_outbox_table(scene.table.metadata), builder) as table:
        outbox = OutboxBroker(engine, outbox_table=table, dlq_table=None)
        inbox = scene.inbox(keep_response=True)
        broker = NatsBroker(middlewares=[inbox.middleware])

        @broker.subscriber("orders")
        @outbox.publisher("returned")
        async def bill(order: str) -> str:
            return order

        with pytest.raises(InvalidOption, match=r"session=session"):
            inbox.check(broker)
        async with TestNatsBroker(broker):
            with pytest.raises(InvalidOption, match=r"session=session"):
                await broker.publish("chair", "orders", headers={"message_id": "m1"})
        assert await scene.receipts() == []

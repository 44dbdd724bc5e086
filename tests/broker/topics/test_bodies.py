"""What a handler of a topic gets: bodies, headers, ids, dependencies; and the same messages seen by `Outbox`."""

import json
from typing import Annotated, Any
from uuid import uuid4

import pytest
from faststream import BaseMiddleware, Context, Depends, Response
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox import NoRetry
from faststream_outbox.annotations import Context as QuickContext
from faststream_outbox.annotations import Logger, OutboxMessage
from faststream_outbox.annotations import OutboxBroker as BrokerOfHandler
from faststream_outbox.log import OutboxMessage as LogMessage
from tests.broker.topics.stage import Stage


class Order(BaseModel):
    id: int


async def put(stage: Stage, *messages: LogMessage) -> None:
    async with AsyncSession(stage.engine) as session, session.begin():
        await stage.outbox.publish(session, *messages)


async def dispatched(stage: Stage, uri: str = "orders") -> list[LogMessage]:
    found: list[LogMessage] = []

    async def take(message: LogMessage) -> None:
        found.append(message)

    while await stage.outbox.dispatch(take, "readers", uri):
        pass
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"a": [1, None, "é"]}, {"a": [1, None, "é"]}),
        ([1, 2], [1, 2]),
        ("text", "text"),
        (b"\x00\xff", b"\x00\xff"),
        (1.5, 1.5),
        (None, b""),
        (Order(id=1), {"id": 1}),
    ],
    ids=repr,
)
async def test_body_arrives_as_it_was_published(stage: Stage, body: Any, expected: Any) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(message: OutboxMessage) -> None:
        stage.seen.append(await message.decode())

    await stage.broker.start()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(body, topic="orders", key="order-1", session=connection)
    assert await stage.saw(1) == [expected]


async def test_body_is_validated(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", retry_strategy=NoRetry())
    async def handle(order: Order) -> None:
        stage.seen.append(order)

    await stage.broker.start()
    await stage.publish({"id": 1}, {"no": "id"}, key="order-1")
    await stage.has_deferred("parked")
    assert stage.seen == [Order(id=1)]


async def test_headers_and_ids_arrive(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(message: OutboxMessage) -> None:
        raw = message.raw_message
        stage.seen.append((message.headers["tenant"], message.correlation_id, message.message_id, raw.queue, raw.id))

    await stage.broker.start()
    message_id = uuid4()
    async with stage.engine.begin() as connection:
        position = await stage.broker.publish(
            1,
            topic="orders",
            key="order-1",
            headers={"tenant": "acme"},
            correlation_id="c-1",
            message_id=message_id,
            session=connection,
        )
    assert await stage.saw(1) == [("acme", "c-1", str(message_id), "orders", position)]


async def test_key_is_there_for_the_handler(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(message: OutboxMessage) -> None:
        stage.seen.append(message.raw_message.key)

    await stage.broker.start()
    await stage.publish(1, 2, keys=["a/b%", None])
    assert await stage.saw(2) == ["a/b%", None]


async def test_correlation_goes_on_to_what_a_handler_publishes(stage: Stage) -> None:
    @stage.broker.publisher(topic="bills")
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> Response:
        return Response(body)

    await stage.broker.start()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="orders", correlation_id="c-1", session=connection)
    await stage.caught_up()
    assert [row["metadata"]["correlation_id"] for row in await stage.in_log("bills")] == ["c-1"]


async def test_each_message_of_a_batch_has_a_correlation_of_its_own(stage: Stage) -> None:
    await stage.publish(1, 2)
    first, second = [row["metadata"]["correlation_id"] for row in await stage.in_log()]
    assert first != second


async def test_dependencies_and_context_are_resolved(stage: Stage) -> None:
    async def doubled(body: int) -> int:
        return body * 2

    async def by_all() -> None:
        stage.seen.append("subscriber's own")

    @stage.broker.subscriber(topic="orders", group="billing", dependencies=[Depends(by_all)])
    async def handle(
        body: int,
        twice: Annotated[int, Depends(doubled)],
        topic: Annotated[str, Context("message.raw_message.queue")],
        tenant: Annotated[str, QuickContext("message.headers.tenant", default="nobody")],
        outbox: BrokerOfHandler,
        logger: Logger,
    ) -> None:
        stage.seen.append((body, twice, topic, tenant, outbox is stage.broker))

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    assert await stage.saw(2) == ["subscriber's own", (1, 2, "orders", "nobody", True)]


async def test_middleware_of_the_broker_sees_the_message(stage: Stage) -> None:
    class Seeing(BaseMiddleware):
        async def consume_scope(self, call_next: Any, msg: Any) -> Any:
            stage.seen.append(msg.raw_message.queue)
            return await call_next(msg)

    broker = stage.replace(middlewares=[Seeing])

    @broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await broker.start()
    await stage.publish(1, key="order-1")
    assert await stage.saw(2) == ["orders", 1]


async def test_own_parser_and_decoder_are_used(stage: Stage) -> None:
    async def parse(raw: Any, original: Any) -> Any:
        message = await original(raw)
        message.headers = {**message.headers, "parsed": "yes"}
        return message

    async def decode(message: Any, original: Any) -> Any:
        return {"decoded": await original(message), "parsed": message.headers["parsed"]}

    @stage.broker.subscriber(topic="orders", group="billing", parser=parse, decoder=decode)
    async def handle(message: OutboxMessage) -> None:
        stage.seen.append(await message.decode())

    await stage.broker.start()
    await stage.publish(1, key="order-1")
    assert await stage.saw(1) == [{"decoded": 1, "parsed": "yes"}]


async def test_own_codec_is_used_both_ways(stage: Stage) -> None:
    class Shouting:
        async def encode(self, msg: Any, serializer: Any = None) -> tuple[bytes, str | None]:
            return json.dumps(msg).upper().encode(), "text/plain"

        async def decode(self, msg: Any) -> Any:
            return json.loads(msg.body.lower())

    broker = stage.replace(codec=Shouting())

    @broker.subscriber(topic="orders", group="billing")
    async def handle(message: OutboxMessage) -> None:
        stage.seen.append(await message.decode())

    await broker.start()
    await stage.publish({"a": "b"}, key="order-1")
    assert await stage.saw(1) == [{"a": "b"}]
    assert [row["body"] for row in await stage.in_log()] == [b'{"A": "B"}']


@pytest.mark.parametrize(
    ("body", "payload"), [({"id": 1}, {"id": 1}), ([1, "a"], [1, "a"]), (b"\x00\xff", b"\x00\xff"), (2, 2)], ids=repr
)
async def test_outbox_reads_what_the_broker_published(stage: Stage, body: Any, payload: Any) -> None:
    async with stage.engine.begin() as connection:
        await stage.broker.publish(
            body, topic="orders", key="order-1", headers={"tenant": "acme"}, correlation_id="c-1", session=connection
        )
    (message,) = await dispatched(stage)
    assert (message.uri, message.payload) == ("orders/order-1", payload)
    assert (message.metadata["tenant"], message.metadata["correlation_id"]) == ("acme", "c-1")


async def test_outbox_knows_the_message_id_as_event_id(stage: Stage) -> None:
    message_id = uuid4()
    async with stage.engine.begin() as connection:
        await stage.broker.publish(1, topic="orders", message_id=message_id, session=connection)
    (message,) = await dispatched(stage)
    assert message.event_id == str(message_id)


@pytest.mark.parametrize("payload", [{"id": 1}, [1, None], "text", 1.5, True, None], ids=repr)
async def test_broker_reads_json_that_outbox_published(stage: Stage, payload: Any) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(message: OutboxMessage) -> None:
        stage.seen.append((await message.decode(), message.content_type))

    await stage.broker.start()
    await put(stage, LogMessage("orders/order-1", payload))
    assert await stage.saw(1) == [(payload, "application/json")]


@pytest.mark.parametrize(
    ("payload", "headers", "expected"),
    [
        (b'{"id":1}', {"content-type": "application/json"}, {"id": 1}),
        (b"text", {"content-type": "text/plain"}, "text"),
        (b"\x00\xff", {}, b"\x00\xff"),
    ],
    ids=["json", "text", "bytes"],
)
async def test_broker_reads_bytes_that_outbox_published_by_their_content_type(
    stage: Stage, payload: bytes, headers: dict[str, Any], expected: Any
) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(message: OutboxMessage) -> None:
        stage.seen.append(await message.decode())

    await stage.broker.start()
    await put(stage, LogMessage("orders/order-1", payload, headers))
    assert await stage.saw(1) == [expected]


async def test_metadata_of_outbox_are_headers(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(message: OutboxMessage) -> None:
        stage.seen.append((message.headers["tenant"], message.correlation_id, message.message_id))

    await stage.broker.start()
    event_id = uuid4()
    await put(stage, LogMessage("orders", 1, {"tenant": "acme", "correlation_id": "c-1", "event_id": str(event_id)}))
    assert await stage.saw(1) == [("acme", "c-1", str(event_id))]


async def test_outbox_and_broker_may_be_members_of_one_group(stage: Stage) -> None:
    async with stage.engine.begin() as connection:
        await stage.broker.publish_batch(1, 2, topic="orders", key="order-1", session=connection)
    taken: list[Any] = []

    async def take(message: LogMessage) -> None:
        taken.append(message.payload)

    await stage.outbox.dispatch(take, "billing", "orders", batch_size=1)

    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        taken.append(body)

    await stage.broker.start()
    await stage.caught_up()
    assert taken == [1, 2]


async def test_token_of_outbox_waits_for_a_subscriber(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing")
    async def handle(body: int) -> None:
        stage.seen.append(body)

    await stage.broker.start()
    async with AsyncSession(stage.engine) as session, session.begin():
        token = await stage.outbox.publish(session, LogMessage("orders/order-1", 1))
    await stage.outbox.wait_until_caught_up(token, "billing", "orders")
    assert stage.seen == [1]

"""What a handler of a topic gets: bodies, headers, ids, dependencies; and the same messages seen by `Outbox`."""

import json
from typing import Annotated, Any
from uuid import uuid4

from faststream import Context, Depends
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


async def dispatched(stage: Stage) -> list[LogMessage]:
    found: list[LogMessage] = []

    async def take(message: LogMessage) -> None:
        found.append(message)

    while await stage.outbox.dispatch(take, "readers", "orders"):
        pass
    return found


def decodes(stage: Stage, broker: Any = None, **options: Any) -> None:
    """A group that notes what a body is decoded to, and its content type."""

    @(broker or stage.broker).subscriber(topic="orders", group="billing", **options)
    async def handle(message: OutboxMessage) -> None:
        stage.seen.append((await message.decode(), message.content_type))


async def test_bodies_arrive_as_they_were_published(stage: Stage) -> None:
    decodes(stage)
    await stage.play({"a": [1, None, "é"]}, [1, 2], "text", b"\x00\xff", 1.5, None, Order(id=1), key="order-1")
    found = [body for body, _ in await stage.saw(7)]
    assert found == [{"a": [1, None, "é"]}, [1, 2], "text", b"\x00\xff", 1.5, b"", {"id": 1}]


async def test_body_is_validated(stage: Stage) -> None:
    @stage.broker.subscriber(topic="orders", group="billing", retry_strategy=NoRetry())
    async def handle(order: Order) -> None:
        stage.seen.append(order)

    await stage.play({"id": 1}, {"no": "id"}, key="order-1")
    await stage.has_deferred("parked")
    assert stage.seen == [Order(id=1)]


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

    await stage.play(1)
    assert await stage.saw(2) == ["subscriber's own", (1, 2, "orders", "nobody", True)]


async def test_own_parser_and_decoder_are_used(stage: Stage) -> None:
    async def parse(raw: Any, original: Any) -> Any:
        message = await original(raw)
        message.headers = {**message.headers, "parsed": "yes"}
        return message

    async def decode(message: Any, original: Any) -> Any:
        return {"decoded": await original(message), "parsed": message.headers["parsed"]}

    stage.reads(parser=parse, decoder=decode)
    await stage.play(1)
    assert await stage.saw(1) == [{"decoded": 1, "parsed": "yes"}]


async def test_own_codec_is_used_both_ways(stage: Stage) -> None:
    class Shouting:
        async def encode(self, msg: Any, serializer: Any = None) -> tuple[bytes, str | None]:
            return json.dumps(msg).upper().encode(), "text/plain"

        async def decode(self, msg: Any) -> Any:
            return json.loads(msg.body.lower())

    stage.replace(codec=Shouting())
    stage.reads()
    await stage.play({"a": "b"})
    assert await stage.saw(1) == [{"a": "b"}]
    assert [row["body"] for row in await stage.in_log()] == [b'{"A": "B"}']


async def test_outbox_reads_what_the_broker_published(stage: Stage) -> None:
    message_id = uuid4()
    await stage.send(1, headers={"tenant": "acme"}, correlation_id="c-1", message_id=message_id)
    await stage.publish({"id": 1}, [1, "a"], b"\x00\xff", key="order-1")
    first, *others = await dispatched(stage)
    assert (first.uri, first.payload, first.event_id) == ("orders", 1, str(message_id))
    assert (first.metadata["tenant"], first.metadata["correlation_id"]) == ("acme", "c-1")
    assert [message.payload for message in others] == [{"id": 1}, [1, "a"], b"\x00\xff"]
    assert {message.uri for message in others} == {"orders/order-1"}


async def test_broker_reads_json_that_outbox_published(stage: Stage) -> None:
    payloads: list[Any] = [{"id": 1}, [1, None], "text", 1.5, True, None]
    decodes(stage)
    await stage.broker.start()
    await put(stage, *[LogMessage("orders/order-1", payload) for payload in payloads])
    assert await stage.saw(6) == [(payload, "application/json") for payload in payloads]


async def test_broker_reads_bytes_that_outbox_published_by_their_content_type(stage: Stage) -> None:
    decodes(stage)
    await stage.broker.start()
    given: list[tuple[bytes, dict[str, Any]]] = [
        (b'{"id":1}', {"content-type": "application/json"}),
        (b"text", {"content-type": "text/plain"}),
        (b"\x00\xff", {}),
    ]
    await put(stage, *[LogMessage("orders/order-1", payload, headers) for payload, headers in given])
    assert [body for body, _ in await stage.saw(3)] == [{"id": 1}, "text", b"\x00\xff"]


async def test_metadata_of_outbox_are_headers(stage: Stage) -> None:
    stage.reads(notes=lambda _, message: (message.headers["tenant"], message.correlation_id, message.message_id))
    await stage.broker.start()
    event_id = str(uuid4())
    await put(stage, LogMessage("orders", 1, {"tenant": "acme", "correlation_id": "c-1", "event_id": event_id}))
    assert await stage.saw(1) == [("acme", "c-1", event_id)]


async def test_outbox_and_broker_may_be_members_of_one_group(stage: Stage) -> None:
    await stage.publish(1, 2, key="order-1")

    async def take(message: LogMessage) -> None:
        stage.seen.append(("outbox", message.payload))

    await stage.outbox.dispatch(take, "billing", "orders", batch_size=1)
    stage.reads()
    await stage.broker.start()
    await stage.caught_up()
    assert stage.seen == [("outbox", 1), 2]


async def test_token_of_outbox_waits_for_a_subscriber(stage: Stage) -> None:
    stage.reads()
    await stage.broker.start()
    async with AsyncSession(stage.engine) as session, session.begin():
        token = await stage.outbox.publish(session, LogMessage("orders/order-1", 1))
    await stage.outbox.wait_until_caught_up(token, "billing", "orders")
    assert stage.seen == [1]

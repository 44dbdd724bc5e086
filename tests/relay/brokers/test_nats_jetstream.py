"""Confirms of a stream for many messages at once, and what still goes through the broker's own `publish`."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import nats as client_library
import pytest
from faststream import BaseMiddleware, FastStream
from faststream.nats import NatsBroker
from nats.aio.client import Client
from nats.js.api import StreamConfig
from nats.js.errors import BadRequestError, NoStreamResponseError

from faststream_outbox._internal.relay.brokers.nats import Confirms, Outgoing
from faststream_outbox._internal.relay.transport import RelayMessage
from faststream_outbox.events import Died, RelayDown
from tests.broker.topics.stage import Stage
from tests.relay.publishing import is_empty, publish
from tests.servers.nats_server import NatsServer
from tests.waiting import eventually

NOBODY = "shop.nobody"


class Seen(BaseMiddleware):  # type: ignore[type-arg]  # of any command
    """Notes what is published."""

    commands: list[Any]

    async def publish_scope(self, call_next: Any, cmd: Any) -> Any:
        self.commands.append(cmd)
        return await call_next(cmd)


class Backwards:
    """A codec that turns bodies round."""

    async def encode(self, msg: Any, serializer: Any = None) -> tuple[bytes, str | None]:
        return bytes(reversed(msg)), None

    async def decode(self, msg: Any) -> Any:
        return msg.body


def seeing() -> type[Seen]:
    return type("SeenHere", (Seen,), {"commands": []})


@pytest.fixture
async def client(nats_server: NatsServer) -> AsyncIterator[Client]:
    found = await client_library.connect(nats_server.url)
    await found.jetstream().add_stream(StreamConfig(name="shop", subjects=["shop.orders"], max_msg_size=100))
    yield found
    await found.close()


def message(subject: str, body: bytes = b"1") -> RelayMessage:
    return RelayMessage(id="1", body=body, uri=subject, created_at=datetime.now(UTC))


def without_ids(stored: tuple[bytes, dict[str, str]]) -> tuple[bytes, dict[str, str]]:
    """A stored message; the values of headers that are another message's are left out."""
    body, headers = stored
    return body, headers | dict.fromkeys(headers.keys() & {"message_id", "Nats-Msg-Id"}, "")


def prepared(one: RelayMessage) -> Outgoing:
    return one.uri, {}


async def test_each_message_has_the_answer_to_itself(client: Client) -> None:
    confirms = await Confirms.open(client, "shop")
    too_large, unknown = message("shop.orders", b"x" * 101), message(NOBODY)
    found = await confirms.publish([message("shop.orders"), too_large, unknown] * 100, prepared, timeout=10)
    assert [type(error) for error in found] == [type(None), BadRequestError, NoStreamResponseError] * 100


async def test_another_answer_than_a_confirm_is_none(client: Client) -> None:
    async def reply(request: Any) -> None:
        await request.respond(b'{"thank": "you"}')

    await client.subscribe(NOBODY, cb=reply)
    confirms = await Confirms.open(client, "shop")
    (error,) = await confirms.publish([message(NOBODY)], prepared, timeout=10)
    assert isinstance(error, TypeError)


@pytest.mark.slow
async def test_no_answer_is_a_timeout_of_its_message_only(client: Client) -> None:
    await client.subscribe(NOBODY)
    confirms = await Confirms.open(client, "shop")
    lost, kept = await confirms.publish([message(NOBODY), message("shop.orders")], prepared, timeout=5)
    assert isinstance(lost, client_library.errors.TimeoutError)
    assert kept is None


async def test_an_answer_that_comes_too_late_is_nobodys(client: Client) -> None:
    late: list[Any] = []

    async def keep(request: Any) -> None:
        late.append(request)

    await client.subscribe(NOBODY, cb=keep)
    confirms = await Confirms.open(client, "shop")
    await confirms.publish([message(NOBODY)], prepared, timeout=0.1)
    await eventually(lambda: late)
    await late[0].respond(b'{"stream":"shop", "seq":1}')
    (kept,) = await confirms.publish([message("shop.orders")], prepared, timeout=10)
    assert kept is None


async def test_what_is_sent_together_is_what_the_broker_would_have_sent(
    stage: Stage, nats: NatsBroker, nats_server: NatsServer
) -> None:
    seen = seeing()
    other = NatsBroker(nats_server.url, logger=None, middlewares=[seen])
    for broker, queue in ((nats, "one"), (other, "two")):
        to = broker.publisher("shop.orders", stream="shop", headers={"shop": "north"}, reply_to="answers")
        stage.broker.relay(queue, to=to)
        await publish(stage, {"id": 1}, queue=queue, correlation_id="cor-1", headers={"tenant": 7})
    async with FastStream(stage.broker, nats, other, logger=None):
        await is_empty(stage, "one")
        await is_empty(stage, "two")
    together, through_broker = await nats_server.stored("shop")
    assert len(seen.commands) == 1
    assert without_ids(together) == without_ids(through_broker)


async def test_middleware_that_is_added_later_sees_what_is_published(stage: Stage, nats: NatsBroker) -> None:
    stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
    seen = seeing()
    async with FastStream(stage.broker, nats, logger=None):
        await publish(stage, 1)
        await is_empty(stage)
        nats.add_middleware(seen)
        await publish(stage, 2)
        await is_empty(stage)
    assert [command.body for command in seen.commands] == [b"2"]


async def test_codec_encodes_what_is_published(stage: Stage, nats_server: NatsServer) -> None:
    nats = NatsBroker(nats_server.url, logger=None, codec=Backwards())
    stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
    await publish(stage, "abc")
    async with FastStream(stage.broker, nats, logger=None):
        await is_empty(stage)
    assert [body for body, _ in await nats_server.stored("shop")] == [b"cba"]


async def test_what_a_stream_refuses_is_a_dead_letter(stage: Stage, nats: NatsBroker, client: Client) -> None:
    stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
    async with FastStream(stage.broker, nats, logger=None):
        # FastStream has declared the stream with settings of its own.
        await client.jetstream().update_stream(StreamConfig(name="shop", subjects=["shop.orders"], max_msg_size=100))
        await publish(stage, b"x" * 101)
        died = await stage.witness.wait(Died)
    assert "message size exceeds maximum allowed" in str(died.error)


async def test_stream_that_does_not_answer_is_an_outage(
    stage: Stage, nats: NatsBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faststream_outbox._internal.relay.brokers.nats.CONFIRM_SECONDS", 0.1)
    stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
    async with FastStream(stage.broker, nats, logger=None):
        await client.jetstream().delete_stream("shop")
        await client.subscribe("shop.orders")
        await client.flush()
        await publish(stage, 1)
        down = await stage.witness.wait(RelayDown)
    assert "timeout" in str(down.error)

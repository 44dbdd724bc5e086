"""Relay to NATS: JetStream confirms, drops duplicates, and has everything in its native place."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import nats as client_library
import pytest
from faststream import BaseMiddleware, FastStream
from faststream.nats import JStream, NatsBroker
from faststream.nats.annotations import NatsMessage
from nats.aio.client import Client
from nats.js.api import StreamConfig
from nats.js.errors import BadRequestError, NoStreamResponseError

from faststream_outbox._internal.relay.brokers.nats import Confirms, Outgoing
from faststream_outbox._internal.relay.transport import RelayMessage
from faststream_outbox.errors import OutboxWarning
from faststream_outbox.events import Died, RelayDown, RelayUp
from tests.broker.topics.stage import Stage
from tests.relay.publishing import is_empty, publish, relaying
from tests.servers.nats_server import NatsServer
from tests.waiting import eventually

NOBODY = "shop.nobody"


def to_orders(nats: NatsBroker) -> Any:
    return nats.publisher("shop.orders", stream="shop")


async def arrived(nats_server: NatsServer, count: int, stream: str = "shop") -> list[tuple[bytes, dict[str, str]]]:
    async def so_much() -> list[tuple[bytes, dict[str, str]]]:
        found = await nats_server.stored(stream)
        return found if len(found) >= count else []

    found: list[tuple[bytes, dict[str, str]]] = await eventually(so_much)
    assert len(found) == count
    return found


@pytest.mark.parametrize("outbox_first", [True, False])
async def test_a_subscriber_sees_it_as_if_it_was_published_there(
    stage: Stage, nats: NatsBroker, nats_server: NatsServer, outbox_first: bool
) -> None:
    stage.broker.relay("orders", to=to_orders(nats))

    @nats.subscriber("shop.orders", stream=JStream("shop", declare=False))
    async def receive(body: dict[str, int], message: NatsMessage) -> None:
        stage.seen.append((body, message.message_id, message.correlation_id, message.headers, message.body))

    await publish(stage, {"id": 1}, correlation_id="cor-1", headers={"traceparent": "00-1-2-01", "tenant": 7})
    (row,) = await stage.sql(f"select message_id from {stage.table.name}")
    brokers = (stage.broker, nats) if outbox_first else (nats, stage.broker)
    async with FastStream(*brokers, logger=None):
        ((body, message_id, correlation_id, headers, raw),) = await stage.saw(1)
        await is_empty(stage)
    assert (body, raw, correlation_id) == ({"id": 1}, b'{"id":1}', "cor-1")
    assert message_id == str(row["message_id"])
    assert (headers["traceparent"], headers["tenant"]) == ("00-1-2-01", "7")


async def test_bytes_arrive_as_they_are(stage: Stage, nats: NatsBroker, nats_server: NatsServer) -> None:
    async with relaying(stage, to_orders(nats), nats, b"\x00\xff", "text", "ünï"):
        found = await arrived(nats_server, 3)
    assert {body for body, _ in found} == {b"\x00\xff", b"text", "ünï".encode()}


async def test_a_repeated_message_is_stored_once(stage: Stage, nats: NatsBroker, nats_server: NatsServer) -> None:
    relay = stage.broker.relay("orders", to=to_orders(nats))
    await publish(stage, 1, 2)
    send = relay.lines[0].transport.send
    answers_to_lose = 1

    async def loses_answers(messages: Any) -> Any:
        nonlocal answers_to_lose
        found = await send(messages)
        if answers_to_lose:
            answers_to_lose -= 1
            raise TimeoutError("the answer was lost")
        return found

    relay.lines[0].transport.send = loses_answers
    async with FastStream(stage.broker, nats, logger=None):
        await is_empty(stage)
        await arrived(nats_server, 2)
    assert answers_to_lose == 0


async def test_two_relays_into_one_stream_are_no_duplicates(
    stage: Stage, nats: NatsBroker, nats_server: NatsServer
) -> None:
    for group in ("one", "two"):
        stage.broker.relay(topic="orders", group=group, to=to_orders(nats))
    await stage.publish(1)
    async with FastStream(stage.broker, nats, logger=None):
        await arrived(nats_server, 2)


async def test_a_server_that_is_down_is_waited_for(stage: Stage, nats: NatsBroker, nats_server: NatsServer) -> None:
    stage.broker.relay(topic="orders", group="billing", to=to_orders(nats))
    async with FastStream(stage.broker, nats, logger=None):
        await stage.publish(0)
        await arrived(nats_server, 1)
        nats_server.kill()
        await stage.publish(*range(1, 30), keys=[str(number % 3) for number in range(1, 30)])
        await stage.witness.wait(RelayDown)
        await nats_server.start()
        await stage.witness.wait(RelayUp)
        await stage.caught_up()
        found = await arrived(nats_server, 30)
    for key in range(3):
        of_key = [int(body) for body, _ in found[1:] if int(body) % 3 == key]
        assert of_key == sorted(of_key)
    assert stage.witness.of(Died) == []


async def test_what_is_too_large_is_a_dead_letter_and_others_pass(
    stage: Stage, nats: NatsBroker, nats_server: NatsServer
) -> None:
    async with relaying(stage, to_orders(nats), nats, b"x" * 2_000_000, b"small"):
        died = await stage.witness.wait(Died)
        await arrived(nats_server, 1)
    assert "maximum payload exceeded" in str(died.error)


async def test_a_subject_of_no_stream_is_a_dead_letter(stage: Stage, nats: NatsBroker, nats_server: NatsServer) -> None:
    async with relaying(stage, to_orders(nats), nats):
        await nats_server.delete_stream("shop")
        await publish(stage, 1)
        died = await stage.witness.wait(Died)
    assert "no stream has the subject 'shop.orders'" in str(died.error)


async def test_core_nats_warns_and_works(stage: Stage, nats: NatsBroker) -> None:
    with pytest.warns(OutboxWarning, match="core NATS keeps nothing"):
        stage.broker.relay("orders", to=nats.publisher("letters"))

    @nats.subscriber("letters")
    async def receive(number: int) -> None:
        stage.seen.append(number)

    await publish(stage, *range(20))
    async with FastStream(nats, stage.broker, logger=None):
        await stage.saw(20)
        await is_empty(stage)
    assert sorted(stage.seen) == [*range(20)]


async def test_uris_say_the_subject(stage: Stage, nats: NatsBroker, nats_server: NatsServer) -> None:
    stage.broker.relay(group="out", to={"nats": nats.publisher("shop.>", stream="shop")})
    await stage.publish(1, topic="nats://shop.orders", key="order-1")
    await stage.publish(2, topic="nats://shop.letters")

    @nats.subscriber("shop.orders", stream=JStream("shop", declare=False))
    async def receive(number: int) -> None:
        stage.seen.append(number)

    async with FastStream(stage.broker, nats, logger=None):
        assert await stage.saw(1) == [1]
        await arrived(nats_server, 2)


async def test_a_broker_that_stops_first_is_no_outage(stage: Stage, nats: NatsBroker, nats_server: NatsServer) -> None:
    stage.broker.relay("orders", to=to_orders(nats))
    app = FastStream(nats, stage.broker, logger=None)
    await app.start()
    await publish(stage, 1)
    await arrived(nats_server, 1)
    await nats.stop()
    await publish(stage, 2)

    async def it_is_claimed() -> Any:
        return await stage.sql(f"select 1 from {stage.table.name} where acquired_token is not null")

    await eventually(it_is_claimed)
    async with asyncio.timeout(10):
        await stage.broker.stop()
    (row,) = await stage.sql(f"select attempts_count, deliveries_count, acquired_token from {stage.table.name}")
    assert dict(row) == {"attempts_count": 0, "deliveries_count": 0, "acquired_token": None}
    assert stage.witness.of(RelayDown) == []
    await app.start()
    await arrived(nats_server, 2)
    await app.stop()


async def test_an_event_says_what_to_start(stage: Stage, nats: NatsBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faststream_outbox._internal.relay.gate.PATIENCE_SECONDS", 0.05)
    relay = stage.broker.relay("orders", to=to_orders(nats))
    await stage.broker.start()
    down = await stage.witness.wait(RelayDown)
    assert "NatsBroker was not started" in str(down.error)
    assert relay.is_degraded
    await nats.start()
    await stage.witness.wait(RelayUp)
    await eventually(lambda: not relay.is_degraded)


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
    seen = seeing()
    async with relaying(stage, to_orders(nats), nats):
        await publish(stage, 1)
        await is_empty(stage)
        nats.add_middleware(seen)
        await publish(stage, 2)
        await is_empty(stage)
    assert [command.body for command in seen.commands] == [b"2"]


async def test_codec_encodes_what_is_published(stage: Stage, nats_server: NatsServer) -> None:
    nats = NatsBroker(nats_server.url, logger=None, codec=Backwards())
    async with relaying(stage, to_orders(nats), nats, "abc"):
        await is_empty(stage)
    assert [body for body, _ in await nats_server.stored("shop")] == [b"cba"]


async def test_what_a_stream_refuses_is_a_dead_letter(stage: Stage, nats: NatsBroker, client: Client) -> None:
    async with relaying(stage, to_orders(nats), nats):
        # FastStream has declared the stream with settings of its own.
        await client.jetstream().update_stream(StreamConfig(name="shop", subjects=["shop.orders"], max_msg_size=100))
        await publish(stage, b"x" * 101)
        died = await stage.witness.wait(Died)
    assert "message size exceeds maximum allowed" in str(died.error)


async def test_stream_that_does_not_answer_is_an_outage(
    stage: Stage, nats: NatsBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faststream_outbox._internal.relay.brokers.nats.CONFIRM_SECONDS", 0.1)
    async with relaying(stage, to_orders(nats), nats):
        await client.jetstream().delete_stream("shop")
        await client.subscribe("shop.orders")
        await client.flush()
        await publish(stage, 1)
        down = await stage.witness.wait(RelayDown)
    assert "timeout" in str(down.error)

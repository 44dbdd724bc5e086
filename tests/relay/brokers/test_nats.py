"""Relay to NATS: JetStream confirms, drops duplicates, and has everything in its native place."""

import asyncio
from typing import Any

import pytest
from faststream import FastStream
from faststream.nats import JStream, NatsBroker
from faststream.nats.annotations import NatsMessage

from faststream_outbox.errors import OutboxWarning
from faststream_outbox.events import Died, RelayDown, RelayUp
from tests.broker.topics.stage import Stage
from tests.relay.publishing import is_empty, publish
from tests.servers.nats_server import NatsServer
from tests.waiting import eventually


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
    stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))

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
    stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
    await publish(stage, b"\x00\xff", "text", "ünï")
    async with FastStream(stage.broker, nats, logger=None):
        found = await arrived(nats_server, 3)
    assert {body for body, _ in found} == {b"\x00\xff", b"text", "ünï".encode()}


async def test_a_repeated_message_is_stored_once(stage: Stage, nats: NatsBroker, nats_server: NatsServer) -> None:
    relay = stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
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
        stage.broker.relay(topic="orders", group=group, to=nats.publisher("shop.orders", stream="shop"))
    await stage.publish(1)
    async with FastStream(stage.broker, nats, logger=None):
        await arrived(nats_server, 2)


async def test_a_server_that_is_down_is_waited_for(stage: Stage, nats: NatsBroker, nats_server: NatsServer) -> None:
    stage.broker.relay(topic="orders", group="billing", to=nats.publisher("shop.orders", stream="shop"))
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
    stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
    await publish(stage, b"x" * 2_000_000, b"small")
    async with FastStream(stage.broker, nats, logger=None):
        died = await stage.witness.wait(Died)
        await arrived(nats_server, 1)
    assert "maximum payload exceeded" in str(died.error)


async def test_a_subject_of_no_stream_is_a_dead_letter(stage: Stage, nats: NatsBroker, nats_server: NatsServer) -> None:
    stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
    async with FastStream(stage.broker, nats, logger=None):
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
    stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
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
    relay = stage.broker.relay("orders", to=nats.publisher("shop.orders", stream="shop"))
    await stage.broker.start()
    down = await stage.witness.wait(RelayDown)
    assert "NatsBroker was not started" in str(down.error)
    assert relay.is_degraded
    await nats.start()
    await stage.witness.wait(RelayUp)
    await eventually(lambda: not relay.is_degraded)

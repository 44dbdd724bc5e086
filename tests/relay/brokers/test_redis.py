"""Relay to Redis: streams, lists and channels; a whole batch in one transaction."""

from collections.abc import AsyncIterator

import pytest
from faststream import FastStream
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.annotations import RedisMessage
from redis.asyncio import Redis

from faststream_outbox.errors import OutboxWarning
from faststream_outbox.events import Died, RelayDown, RelayUp
from tests.broker.topics.stage import Stage
from tests.relay.publishing import is_empty, own_id, publish, relaying
from tests.servers.redis_server import RedisServer
from tests.waiting import eventually


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[RedisBroker]:
    redis = RedisBroker(redis_server.url, logger=None)
    yield redis
    await redis.stop()


@pytest.mark.parametrize("kind", ["stream", "list"])
async def test_a_subscriber_sees_it_as_if_it_was_published_there(stage: Stage, redis: RedisBroker, kind: str) -> None:
    stage.broker.relay("orders", to=redis.publisher(**{kind: "shop"}))

    # Without a place to begin, a stream is read from its end, until the first message comes while it is read.
    @redis.subscriber(**{kind: StreamSub("shop", last_id="0") if kind == "stream" else "shop"})
    async def receive(body: dict[str, int], message: RedisMessage) -> None:
        stage.seen.append((body, message.message_id, message.correlation_id, message.headers, message.body))

    headers = {"traceparent": "00-1-2-01", "tenant": 7, "city": "Łódź"}
    async with FastStream(redis, logger=None):
        await publish(stage, {"id": 1}, correlation_id="cor-1", headers=headers)
        message_id = await own_id(stage)
        await stage.broker.start()
        ((body, seen_id, correlation_id, seen_headers, raw),) = await stage.saw(1)
        await is_empty(stage)
    assert (body, raw, correlation_id, seen_id) == ({"id": 1}, b'{"id":1}', "cor-1", message_id)
    assert (seen_headers["traceparent"], seen_headers["tenant"], seen_headers["city"]) == ("00-1-2-01", "7", "Łódź")


async def test_runs_of_a_key_go_together_and_in_order(
    stage: Stage, redis: RedisBroker, redis_server: RedisServer
) -> None:
    relay = stage.broker.relay(topic="orders", group="billing", to=redis.publisher(list="shop"), max_in_flight=500)
    await stage.publish(*range(200))
    sizes: list[int] = []
    transport = relay.lines[0].transport
    send = transport.send

    async def counted(messages: list[object]) -> object:
        sizes.append(len(messages))
        return await send(messages)

    transport.send = counted
    async with FastStream(stage.broker, redis, logger=None):
        await stage.caught_up()
    async with Redis.from_url(redis_server.url) as client:
        stored = await client.lrange("shop", 0, -1)  # type: ignore[misc]
    assert [int(body.rpartition(b"json")[2]) for body in stored] == [*range(200)]
    assert max(sizes) > 1


async def test_a_server_that_is_down_is_waited_for(stage: Stage, redis: RedisBroker, redis_server: RedisServer) -> None:
    stage.broker.relay(topic="orders", group="billing", to=redis.publisher(stream="shop"))
    async with FastStream(stage.broker, redis, logger=None):
        redis_server.kill()
        await stage.publish(*range(30), keys=[str(number % 3) for number in range(30)])
        await stage.witness.wait(RelayDown)
        await redis_server.start()
        await stage.witness.wait(RelayUp)
        await stage.caught_up()
        async with Redis.from_url(redis_server.url) as client:
            assert await client.xlen("shop") == 30
    assert stage.witness.of(Died) == []


async def test_a_name_of_another_type_refuses_its_own_messages_only(
    stage: Stage, redis: RedisBroker, redis_server: RedisServer
) -> None:
    stage.broker.relay(group="out", to={"redis": redis})
    async with Redis.from_url(redis_server.url) as client:
        await client.set("taken", "by a text")
        await stage.publish(1, topic="redis://taken")
        await stage.publish(2, topic="redis://free", key="order-1")
        async with FastStream(stage.broker, redis, logger=None):
            died = await stage.witness.wait(Died)
            await eventually(lambda: client.xlen("free"))
    assert "WRONGTYPE" in str(died.error)


async def test_a_channel_warns(stage: Stage, redis: RedisBroker) -> None:
    with pytest.warns(OutboxWarning, match="a Redis channel keeps nothing"):
        async with relaying(stage, redis.publisher("letters"), redis, 1):
            await is_empty(stage)

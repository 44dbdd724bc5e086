"""From outbox to table: relays and consumers are killed, and every message takes effect once, in order per key.

Order at the table needs a broker that has one message on its way at a time, over all consumers: JetStream with
`max_ack_pending=1`, RabbitMQ with a single active consumer and a prefetch of one. Else what comes again is overtaken.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import pytest
from aio_pika import connect
from aio_pika.abc import AbstractQueue
from sqlalchemy import URL, Engine

from tests.broker.topics.stage import Stage
from tests.faults.inbox_child import STREAM, SUBJECT, Consumer, inbox_table, is_drained, metadata
from tests.faults.processes import ConsumerProcess, RelayProcess, Troupe
from tests.relay.child import Route
from tests.relay.traffic import left, publish_both
from tests.servers.nats_server import NatsServer
from tests.tables import all_existing
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.slow]

KEYS = 50
PATIENCE = 60.0

COUNT, KILLS = 300, 2


class Trip:
    """The processes of one test, and what they have brought about."""

    def __init__(self, stage: Stage, relays: Troupe[RelayProcess], consumers: Troupe[ConsumerProcess]) -> None:
        self.stage = stage
        self.relays = relays
        self.consumers = consumers

    async def effects(self) -> int:
        (row,) = await self.stage.sql("select count(*) from killed_effects")
        return int(row["count"])

    async def has_effects(self, count: int) -> None:
        async def it_has() -> bool:
            return await self.effects() >= count

        await eventually(it_has, PATIENCE, f"{count} effects")

    async def run(self, route: Route, consumer: Consumer, is_drained: Callable[[], Awaitable[bool]]) -> None:
        """Publish share by share; as soon as one begins to arrive, kill the oldest relay and the oldest consumer."""
        await asyncio.gather(self.relays.start(route, route), self.consumers.start(consumer, consumer))
        share = COUNT // 2 // (KILLS + 1)
        for turn in range(KILLS + 1):
            before = await self.effects()
            await publish_both(self.stage, turn * share, share, KEYS)
            if turn < KILLS:
                await self.has_effects(before + share // 4)
                await asyncio.gather(self.relays.alive[0].kill(), self.consumers.alive[0].kill())
                await asyncio.gather(self.relays.start(route), self.consumers.start(consumer))
        await self.has_effects(COUNT)
        assert await left(self.stage) == 0
        await eventually(is_drained, PATIENCE)
        await self.has_taken_effect_once_and_in_order()

    async def has_taken_effect_once_and_in_order(self) -> None:
        """Each message once, and of each key in the order in which it was published."""
        rows = await self.stage.sql("select source, key, n from killed_effects order by id")
        expected = [(source, number) for source in ("queue", "topic") for number in range(COUNT // 2)]
        assert sorted((row["source"], row["n"]) for row in rows) == expected
        by_key: dict[tuple[str, str], list[int]] = {}
        for row in rows:
            by_key.setdefault((row["source"], row["key"]), []).append(row["n"])
        assert {key: numbers for key, numbers in by_key.items() if numbers != sorted(numbers)} == {}
        assert await self.stage.sql(f"select 1 from {self.stage.dlq_table.name}") == []


@pytest.fixture
async def trip(
    stage: Stage, relays: Troupe[RelayProcess], consumers: Troupe[ConsumerProcess], builder: Engine
) -> AsyncIterator[Trip]:
    with all_existing([inbox_table, metadata.tables["killed_effects"]], builder):
        yield Trip(stage, relays, consumers)
        for child in consumers.alive:
            await child.kill()


@pytest.fixture
async def queue(amqp: str) -> AsyncIterator[AbstractQueue]:
    """A queue that delivers to one consumer, and to another one when that is gone."""
    async with await connect(amqp) as connection:
        channel = await connection.channel()
        arguments = {"x-single-active-consumer": True}
        queue = await channel.declare_queue(f"outbox_test_{uuid4().hex}", durable=True, arguments=arguments)
        yield queue
        await queue.delete(if_unused=False, if_empty=False)


async def test_over_nats(trip: Trip, nats_server: NatsServer, database_url: URL, record: str) -> None:
    await nats_server.make_stream(STREAM, SUBJECT)
    route = Route(database_url.render_as_string(hide_password=False), "nats", nats_server.url, SUBJECT)
    consumer = Consumer(record, nats_server.url, place=SUBJECT, in_order=True)
    await trip.run(route, consumer, lambda: is_drained(nats_server.url))


async def test_over_rabbitmq(trip: Trip, amqp: str, queue: AbstractQueue, database_url: URL, record: str) -> None:
    async def is_empty() -> bool:
        return (await queue.declare()).message_count == 0

    route = Route(database_url.render_as_string(hide_password=False), "rabbit", amqp, queue.name)
    await trip.run(route, Consumer(record, amqp, kind="rabbit", place=queue.name), is_empty)

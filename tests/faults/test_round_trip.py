"""From outbox to table: relays and consumers are killed, and every message takes effect once, in order per key.

Order at the table needs a broker that has one message on its way at a time, over all consumers: JetStream with
`max_ack_pending=1`, RabbitMQ with a single active consumer and a prefetch of one. Else what comes again is overtaken.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import nats
import pytest
from aio_pika import connect
from aio_pika.abc import AbstractQueue
from sqlalchemy import URL, Engine

from tests.broker.topics.stage import Stage
from tests.faults.inbox_child import STREAM, SUBJECT, Consumer, inbox_table, metadata
from tests.faults.processes import ConsumerProcess, RelayProcess, Troupe
from tests.relay.child import Route
from tests.relay.traffic import left, publish_both
from tests.servers.nats_server import NatsServer
from tests.tables import all_existing
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.slow]

KEYS = 50
PATIENCE = 60.0

SIZES = pytest.mark.parametrize(
    ("count", "kills"), [(300, 2), pytest.param(20_000, 5, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])]
)


class Trip:
    """The processes of one test, and what they have brought about."""

    def __init__(self, stage: Stage, relays: Troupe[RelayProcess], consumers: Troupe[ConsumerProcess]) -> None:
        self.stage = stage
        self.relays = relays
        self.consumers = consumers

    async def effects(self) -> int:
        (row,) = await self.stage.sql("select count(*) from killed_effects")
        return int(row["count"])

    async def has_effects(self, count: int, patience: float = PATIENCE) -> None:
        async def it_has() -> bool:
            return await self.effects() >= count

        await eventually(it_has, patience, f"{count} effects")

    async def run(
        self, route: Route, consumer: Consumer, is_drained: Callable[[], Awaitable[bool]], count: int, kills: int
    ) -> None:
        """Publish share by share; as soon as one begins to arrive, kill the oldest relay and the oldest consumer."""
        await asyncio.gather(self.relays.start(route, route), self.consumers.start(consumer, consumer))
        ends = [count // 2 * (turn + 1) // (kills + 1) for turn in range(kills + 1)]
        for first, end in zip([0, *ends], ends, strict=False):
            before = await self.effects()
            await publish_both(self.stage, first, end - first, KEYS)
            if end != ends[-1]:
                await self.has_effects(before + (end - first) // 4)
                await asyncio.gather(self.relays.alive[0].kill(), self.consumers.alive[0].kill())
                await asyncio.gather(self.relays.start(route), self.consumers.start(consumer))
        await self.has_effects(count, PATIENCE + count / 50)
        assert await left(self.stage) == 0
        await eventually(is_drained, PATIENCE)

    async def check(self, count: int) -> None:
        """Each message once, and of each key in the order in which it was published."""
        rows = await self.stage.sql("select source, key, n from killed_effects order by id")
        expected = [(source, number) for source in ("queue", "topic") for number in range(count // 2)]
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


@SIZES
async def test_over_nats(
    trip: Trip, nats_server: NatsServer, database_url: URL, record: str, count: int, kills: int
) -> None:
    await nats_server.make_stream(STREAM, SUBJECT)
    client = await nats.connect(nats_server.url)
    context = client.jetstream()

    async def is_drained() -> bool:
        info = await context.consumer_info(STREAM, "billing")
        return info.num_pending == 0 and info.num_ack_pending == 0

    route = Route(database_url.render_as_string(hide_password=False), "nats", nats_server.url, SUBJECT)
    await trip.run(route, Consumer(record, nats_server.url, place=SUBJECT, in_order=True), is_drained, count, kills)
    await client.close()
    await trip.check(count)


@SIZES
async def test_over_rabbitmq(
    trip: Trip, amqp: str, queue: AbstractQueue, database_url: URL, record: str, count: int, kills: int
) -> None:
    async def is_drained() -> bool:
        return (await queue.declare()).message_count == 0

    route = Route(database_url.render_as_string(hide_password=False), "rabbit", amqp, queue.name)
    await trip.run(route, Consumer(record, amqp, kind="rabbit", place=queue.name), is_drained, count, kills)
    await trip.check(count)

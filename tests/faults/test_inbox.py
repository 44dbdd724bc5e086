"""Consumers with an inbox are killed while a stream is delivered to them: every message takes effect exactly once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from random import Random

import nats
import psycopg
import pytest
from sqlalchemy import URL, Column, Engine, MetaData, Table, Text, event, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import Inbox, events, make_inbox_table
from tests.faults.inbox_child import STREAM, SUBJECT, Consumer, inbox_table, metadata
from tests.faults.processes import ConsumerProcess, Troupe
from tests.faults.proxy import Proxy, Way, proxy_to
from tests.servers.nats_server import NatsServer
from tests.tables import all_existing
from tests.waiting import eventually

pytestmark = pytest.mark.faults

PATIENCE = 60.0
KILLS = 5


def effects(world: str) -> Counter[int]:
    with psycopg.connect(world) as connection:
        return Counter(number for (number,) in connection.execute("select n from killed_effects"))


async def publish(server: NatsServer, count: int) -> None:
    """Each message twice, under one id, without the broker's own help against that."""
    client = await nats.connect(server.url)
    context = client.jetstream()
    try:
        for first in range(0, count, 200):
            numbers = [number for number in range(first, min(first + 200, count)) for _ in range(2)]
            headers = {"content-type": "application/json"}
            sent = (
                context.publish(SUBJECT, b'{"n": %d}' % one, headers={**headers, "message_id": str(one)})
                for one in numbers
            )
            await asyncio.gather(*sent)
    finally:
        await client.close()


async def run(
    server: NatsServer, consumers: Troupe[ConsumerProcess], record: str, builder: Engine, count: int, seed: int
) -> None:
    await server.make_stream(STREAM, "shop.>")
    consumer = Consumer(record, server.url, 1.0)
    chance = Random(seed)
    with all_existing([inbox_table, metadata.tables["killed_effects"]], builder):
        await consumers.start(consumer, consumer)
        publishing = asyncio.create_task(publish(server, count))
        for kill in range(1, KILLS + 1):
            share = count * kill // (KILLS + 2)
            await eventually(lambda share=share: len(effects(record)) >= share, PATIENCE)
            await chance.choice(consumers.alive).kill()
            await consumers.start(consumer)
        await publishing
        await eventually(lambda: len(effects(record)) == count, PATIENCE + count / 50)
        client = await nats.connect(server.url)
        context = client.jetstream()

        async def is_drained() -> bool:
            info = await context.consumer_info(STREAM, "billing")
            return info.num_pending == 0 and info.num_ack_pending == 0

        await eventually(is_drained, PATIENCE)
        await client.close()
        for child in consumers.alive:
            await child.kill()
        assert effects(record) == Counter(range(count))


async def test_effects_happen_once_although_consumers_are_killed(
    nats_server: NatsServer, consumers: Troupe[ConsumerProcess], record: str, builder: Engine, seed: int
) -> None:
    await run(nats_server, consumers, record, builder, 600, seed)


@pytest.mark.soak
async def test_twenty_thousand_effects_happen_once_although_consumers_are_killed(
    nats_server: NatsServer, consumers: Troupe[ConsumerProcess], record: str, builder: Engine, seed: int
) -> None:
    await run(nats_server, consumers, record, builder, 20_000, seed)


@pytest.fixture
async def proxy(record: str) -> AsyncIterator[Proxy]:
    with psycopg.connect(record) as connection:
        port = connection.info.port
    async with proxy_to(port) as proxy:
        yield proxy


class Far:
    """An inbox behind the proxy, and its effects as they are seen from near the server."""

    def __init__(self, url: URL, proxy: Proxy, driver: str, near: AsyncEngine) -> None:
        made = MetaData()
        self.table, self.effects = make_inbox_table(made), Table("effects", made, Column("what", Text))
        address = url.set(drivername=f"postgresql+{driver}", host="127.0.0.1", port=proxy.port, query={})
        self.engine = create_async_engine(address)
        self.inbox = Inbox(self.engine, self.table, consumer="billing", keep=None)
        self.heard: list[object] = []
        self.inbox.events.subscribe(self.heard.append)
        self.near = near
        self.runs = 0

    async def deliver(self) -> None:
        async with self.inbox.receive("m1", source="orders") as receipt:
            if receipt.is_new:
                self.runs += 1
                await receipt.session.execute(insert(self.effects).values(what="m1"))

    async def written(self) -> list[str]:
        async with self.near.connect() as connection:
            return list((await connection.execute(select(self.effects.c.what))).scalars())


@pytest.fixture(params=["asyncpg", "psycopg"])
async def far(
    request: pytest.FixtureRequest, database_url: URL, proxy: Proxy, engine: AsyncEngine, builder: Engine
) -> AsyncIterator[Far]:
    far = Far(database_url, proxy, request.param, engine)
    with all_existing([far.table, far.effects], builder):
        yield far
        await far.engine.dispose()
        await engine.dispose()


async def test_commit_whose_answer_was_lost_is_known_to_have_come_about(far: Far, proxy: Proxy) -> None:
    event.listen(far.engine.sync_engine, "commit", lambda _: setattr(proxy, "way", Way.DEAF), once=True)
    delivering = asyncio.create_task(far.deliver())
    await eventually(far.written, PATIENCE)
    proxy.way = Way.OPEN
    proxy.cut()
    await delivering
    await far.deliver()
    assert (await far.written(), far.runs) == (["m1"], 1)
    kinds = [type(heard) for heard in far.heard]
    assert kinds[-2:] == [events.Received, events.DuplicateSkipped]


async def test_commit_that_never_arrived_is_known_to_have_failed(far: Far, proxy: Proxy) -> None:
    event.listen(far.engine.sync_engine, "commit", lambda _: setattr(proxy, "way", Way.BLACK_HOLE), once=True)
    delivering = asyncio.create_task(far.deliver())
    await eventually(lambda: proxy.swallowed, PATIENCE)
    proxy.cut()
    proxy.way = Way.OPEN
    with pytest.raises(Exception, match=r"."):
        await delivering
    assert await far.written() == []
    await far.deliver()
    assert (await far.written(), far.runs) == (["m1"], 2)

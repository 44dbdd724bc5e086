"""Queues and topics of one broker behind PgBouncer in both modes, while PgBouncer is restarted."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, MetaData, Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.events.types import ListenerDeaf, ListenerReady
from faststream_outbox.log import make_log_tables
from tests.pgbouncer.conftest import SETTINGS
from tests.pgbouncer.pooler import Pooler, pooled
from tests.publish.ways import plain
from tests.waiting import eventually

pytestmark = [pytest.mark.pgbouncer, pytest.mark.slow]

KEYS = 4
MESSAGES = 12


@pytest.fixture(params=["session", "transaction"])
async def restartable(request: pytest.FixtureRequest, database_url: URL, tmp_path: Path) -> AsyncIterator[Pooler]:
    servers = 30 if request.param == "session" else 3
    async with pooled(database_url, tmp_path, servers=servers, mode=request.param) as there:
        yield there


@pytest.fixture(params=SETTINGS)
async def behind(request: pytest.FixtureRequest, restartable: Pooler) -> AsyncIterator[AsyncEngine]:
    """As the page says: session mode needs no settings. A pool that asks before it lends outlives a restart."""
    mode: str = request.node.callspec.params["restartable"]
    settings = SETTINGS[request.param] if mode == "transaction" else {}
    url = restartable.url.set(drivername=f"postgresql+{request.param}")
    engine = create_async_engine(url, connect_args=settings, pool_pre_ping=True)
    yield engine
    await engine.dispose()


class Application:
    """A broker with a queue and a topic, what its handlers saw, and what was told of its listeners."""

    def __init__(self, engine: AsyncEngine, table: Table, log_tables: Any, listen_dsn: str | None) -> None:
        self.broker = OutboxBroker(
            engine, outbox_table=table, dlq_table=None, log_tables=log_tables, listen_dsn=listen_dsn
        )
        self.orders: list[int] = []
        self.facts: defaultdict[str, list[int]] = defaultdict(list)
        self.ready: list[str] = []
        self.broker.client.events.subscribe(lambda event: self.ready.append(event.channel), ListenerReady)
        self.broker.client.events.subscribe(lambda event: pytest.fail(str(event)), ListenerDeaf)
        self._engine = engine

        @self.broker.subscriber("orders", max_workers=2)
        async def take_order(number: int) -> None:
            self.orders.append(number)

        @self.broker.subscriber(topic="shop", group="billing", max_workers=2)
        async def take_fact(number: int) -> None:
            self.facts[f"k{number % KEYS}"].append(number)

    async def publish(self, numbers: range) -> None:
        for number in numbers:
            async with AsyncSession(self._engine) as session, session.begin():
                await self.broker.publish(number, queue="orders", session=session)
                await self.broker.publish(number, topic="shop", key=f"k{number % KEYS}", session=session)

    def has_seen(self, count: int) -> bool:
        facts = {number for numbers in self.facts.values() for number in numbers}
        return set(self.orders) == facts == set(range(count))


async def test_a_restart_of_the_pooler_loses_nothing_and_keeps_the_order(
    restartable: Pooler, behind: AsyncEngine, database_url: URL, table: Table, request: pytest.FixtureRequest
) -> None:
    is_session = request.node.callspec.params["restartable"] == "session"
    metadata = MetaData()
    log_tables = make_log_tables(metadata, "outbox_log")
    async with behind.begin() as connection:
        await connection.run_sync(metadata.create_all)
    application = Application(behind, table, log_tables, None if is_session else plain(database_url))
    try:
        await application.broker.start()
        await application.publish(range(MESSAGES))
        await eventually(lambda: application.has_seen(MESSAGES))
        await eventually(lambda: len(set(application.ready)) == 2)
        heard = len(application.ready)
        await restartable.stop()
        await asyncio.sleep(0.2)
        await restartable.start()
        await application.publish(range(MESSAGES, 2 * MESSAGES))
        await eventually(lambda: application.has_seen(2 * MESSAGES))
        if is_session:
            # LISTEN went with the pooler, and is there again.
            await eventually(lambda: len(application.ready) >= heard + 2)
    finally:
        await application.broker.stop()
        async with behind.begin() as connection:
            await connection.run_sync(metadata.drop_all)
    for key, numbers in application.facts.items():
        # Some may come again: nobody knows whether a commit that was cut off came about.
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers)), key

"""A loop that hangs is named; what merely takes long, rests or tries again is not."""

import asyncio
import re
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from faststream_outbox import OutboxBroker
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.health import progress
from faststream_outbox._internal.health.progress import Parts
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox.health import Health, health
from faststream_outbox.log import Outbox
from faststream_outbox.queue import DONE, Claim, Done
from tests.queue.rig import Rig
from tests.waiting import eventually

LATER = 100_000.0


@pytest.fixture
def much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks does so after everything should have moved on long ago."""
    monkeypatch.setattr(progress, "monotonic", lambda: monotonic() + LATER)


@pytest.fixture
def without_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "GRACE_SECONDS", 0.0)


@pytest.fixture
async def rig(engine: AsyncEngine, table: Table, dlq_table: Table) -> Any:
    rig = Rig(engine, table, dlq_table)
    yield rig
    await rig.close()


async def handle_at_once(claim: Claim) -> Done:
    return DONE


class Hanging:
    """Lets the statements of a connection wait for ever, or until the test is over."""

    def __init__(self, connection: DedicatedConnection) -> None:
        self._connection: Any = connection
        self._fetches = connection.fetch, connection.fetch_each
        self.over = asyncio.Event()
        self.asked = asyncio.Event()
        self._connection.fetch = self._connection.fetch_each = self._hang

    async def _hang(self, *_: Any, **__: Any) -> Any:
        self.asked.set()
        await self.over.wait()
        raise ConnectionError("gone")

    def end(self) -> None:
        self._connection.fetch, self._connection.fetch_each = self._fetches
        self.over.set()


@pytest.fixture
def hangings() -> Iterator[list[Hanging]]:
    hangings: list[Hanging] = []
    yield hangings
    for hanging in hangings:
        hanging.end()


async def test_a_broker_that_works_is_well(broker: OutboxBroker) -> None:
    await broker.start()

    async def is_well() -> bool:
        return await health(broker, timeout=30) == Health(live=True, ready=True)

    await eventually(is_well)


LOOPS = {"_claim_connection": "outbox claimer", "_scan_connection": "outbox scanner"}
LOOPS |= {"_settle_connection": "outbox watcher"}


@pytest.mark.parametrize("name", LOOPS)
async def test_a_loop_of_queues_that_hangs_is_named(rig: Rig, much_later: None, name: str) -> None:
    await rig.work(handle_at_once, min_fetch_interval=0.01, max_fetch_interval=0.01)
    hanging = Hanging(getattr(rig.client, name))
    try:
        await rig.put("1")
        await hanging.asked.wait()
        found = await health(rig.client, timeout=30)
        assert not found.live
        assert LOOPS[name] in {words.split(" has not moved")[0] for words in found.stuck}
    finally:
        hanging.end()


async def test_a_loop_of_topics_that_hangs_is_named(
    broker: OutboxBroker, much_later: None, hangings: list[Hanging]
) -> None:
    await broker.start()
    for connection in broker.log.connections:
        hangings.append(Hanging(connection))
    await asyncio.gather(*(hanging.asked.wait() for hanging in hangings))

    async def ticker_is_named() -> bool:
        return any("outbox ticker" in words for words in (await health(broker.log, timeout=30)).stuck)

    await eventually(ticker_is_named)


async def test_a_loop_that_ended_is_named(broker: OutboxBroker) -> None:
    await broker.start()
    task: Any = broker.log.services[0]._task
    task.cancel()
    await asyncio.wait([task])
    found = await health(broker, timeout=30)
    assert (found.live, found.stuck) == (False, ("outbox ticker is not running",))
    assert not await broker.ping(30)


async def test_a_handler_that_runs_for_hours_is_live_and_said_to_keep_others_waiting(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, over = asyncio.Event(), asyncio.Event()

    async def handle(claim: Claim) -> Done:
        began.set()
        await over.wait()
        return DONE

    await rig.work(handle, max_workers=1)
    await rig.put("1", "2")
    await began.wait()
    assert (await health(rig.client, timeout=30)).live
    monkeypatch.setattr(progress, "monotonic", lambda: monotonic() + 7200.0)
    said = progress.degraded(Parts(client=rig.client))
    # To the second, on a machine that may have been busy since.
    assert any(re.search(r"every handler has been at the same message for 72\d\d s", words) for words in said)
    over.set()


async def test_messages_that_wait_for_a_free_handler_are_named(rig: Rig) -> None:
    worker = await rig.work(handle_at_once)
    # As if a call to the executors had been lost.
    worker.ready.count, worker.ready.moved_at = 1, 0.0
    found = await health(rig.client, timeout=30)
    worker.ready.count = 0
    assert not found.live
    assert "orders: messages have waited for a free handler" in found.stuck[0]


async def test_a_paused_queue_is_well(broker: OutboxBroker) -> None:
    await broker.start()
    await broker.pause("orders")
    async with AsyncSession(broker.engine) as session, session.begin():
        await broker.publish(1, "orders", session=session)
    found = await health(broker, timeout=30)
    assert (found.live, found.ready) == (True, True)


async def test_outcomes_that_cannot_be_written_are_said(rig: Rig, without_grace: None) -> None:
    await rig.work(handle_at_once)
    hanging = Hanging(rig.client._settle_connection)
    await rig.put("1")
    parts = Parts(client=rig.client)
    await eventually(lambda: "settling is behind: 1 outcomes are not written" in progress.degraded(parts))
    hanging.end()


@pytest.mark.examines
async def test_a_database_that_is_away_is_no_reason_to_restart(
    table: Table, log_tables: LogTables, without_grace: None
) -> None:
    nowhere = create_async_engine("postgresql+asyncpg://nobody@127.0.0.1:1/none")
    broker = OutboxBroker(nowhere, outbox_table=table, dlq_table=None, log_tables=log_tables, logger=None)

    @broker.subscriber("orders")
    async def handle(body: int) -> None: ...

    @broker.subscriber(topic="orders", group="billing")
    async def bill(body: int) -> None: ...

    await broker.start()
    try:

        async def is_known() -> Health | None:
            found = await health(broker, timeout=30)
            failing = {words.split(" have failed")[0] for words in found.degraded}
            wanted = {f"statements for {role}" for role in ("scan", "sequencing", "reading")}
            return found if wanted <= failing and any("LISTEN" in words for words in found.degraded) else None

        found: Health = await eventually(is_known)
        assert (found.live, found.ready) == (True, False)
        assert found.unready[0].startswith("the database does not answer: ")
    finally:
        await broker.stop()
        await nowhere.dispose()


class Relay:
    name = "orders to nats"
    is_degraded = True


def test_a_relay_whose_broker_does_not_answer_is_said() -> None:
    assert progress.degraded(Parts(relays=lambda: [Relay()])) == [
        "relay orders to nats: the broker that it sends to does not answer"
    ]


async def test_an_outbox_without_a_broker_has_a_health_too(engine: AsyncEngine, log_tables: LogTables) -> None:
    outbox = Outbox(engine, tables=log_tables, listen=False)
    assert await health(outbox, timeout=30) == Health(live=True, ready=True)
    await outbox.client.close()


async def test_something_else_has_none() -> None:
    with pytest.raises(TypeError, match="a broker, an OutboxClient or an Outbox, not of str"):
        await health("broker")

"""A database that went back in time under a living consumer, as after a failover: nothing new is passed over."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from faststream_outbox.log import Outbox, OutboxMessage
from faststream_outbox.testing.postgres import PostgresServer
from tests.log.clusters import DATABASE, dump, emptied, restore, start
from tests.log.opened import Collector, drain, put
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.faults]

URI = "kafka://orders"
MODES = pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresServer]:
    with start() as server:
        yield server


@pytest.fixture
def server(cluster: PostgresServer) -> PostgresServer:
    """A cluster of our own, with an empty database."""
    return emptied(cluster)


async def _made(server: PostgresServer, **options: Any) -> AsyncIterator[Outbox]:
    engine = create_async_engine(server.dsn(DATABASE), pool_pre_ping=True)
    outbox = Outbox(engine, lease_ttl_seconds=1.0, **options)
    yield outbox
    await outbox.cleanup()
    await engine.dispose()


@pytest.fixture
async def outbox(server: PostgresServer) -> AsyncIterator[Outbox]:
    """The log in the process that outlives the change."""
    async for outbox in _made(server):
        await outbox.setup()
        yield outbox


@pytest.fixture
async def other(server: PostgresServer) -> AsyncIterator[Outbox]:
    """The log in a process that comes later."""
    async for outbox in _made(server):
        yield outbox


async def _go_back(server: PostgresServer, file: Path) -> None:
    """Put the backup in the place of the database, at once; every connection ends."""
    backup = f"{DATABASE}_backup"
    await asyncio.to_thread(server.create_database, backup)
    await asyncio.to_thread(restore, server, file, backup)
    swap = f"drop database {DATABASE} with (force)", f"alter database {backup} rename to {DATABASE}"
    await asyncio.to_thread(server.run, "psql", "-X", "-d", "postgres", "-c", swap[0], "-c", swap[1])


async def _publish(outbox: Outbox, *payloads: Any) -> None:
    """Each in a tick of its own."""
    for payload in payloads:
        await put(outbox, URI, payload)
        await outbox.client.sequencer.catch_up()


@MODES
async def test_a_running_group_goes_back_with_its_database(
    server: PostgresServer, outbox: Outbox, other: Outbox, tmp_path: Path, *, transactional: bool
) -> None:
    collector, stop = Collector(), asyncio.Event()

    async def handle(message: OutboxMessage, session: AsyncSession | None = None) -> None:
        await collector(message)

    running = asyncio.create_task(
        outbox.run(handle, "broker", poll_interval=0.2, stop_event=stop, transactional=transactional)
    )
    await _publish(outbox, "kept")
    await eventually(lambda: collector.payloads == ["kept"])
    dump(server, tmp_path / "dump.sql")
    await _publish(outbox, *[f"forgotten {number}" for number in range(5)])
    await eventually(lambda: len(collector.messages) == 6)
    await _go_back(server, tmp_path / "dump.sql")
    collector.messages.clear()
    await _publish(other, *[f"new {number}" for number in range(5)])
    token = await put(other, URI, "last")
    await eventually(lambda: "last" in collector.payloads)
    await other.wait_until_caught_up(token, "broker")
    stop.set()
    await asyncio.wait_for(running, 20)
    expected = [*[f"new {number}" for number in range(5)], "last"]
    # One in flight while its connection ended, or that a reader found before it knew, comes again in its order.
    settled = [*dict.fromkeys(reversed(collector.payloads))][::-1]
    assert [payload for payload in settled if payload != "kept"] == expected


async def test_ticks_that_were_known_are_not_trusted_afterwards(
    server: PostgresServer, outbox: Outbox, other: Outbox, tmp_path: Path
) -> None:
    await _publish(outbox, "kept")
    await drain(outbox, Collector(), "broker")
    dump(server, tmp_path / "dump.sql")
    for _ in range(4):
        await _publish(outbox, "forgotten")
    await drain(outbox, Collector(), "broker")
    await _go_back(server, tmp_path / "dump.sql")
    # Numbers go on elsewhere than before: the ticks of the same numbers hold other messages.
    async with other.engine.connect() as failed:
        await other.publish(failed, *[OutboxMessage(URI, "never") for _ in range(50)])
        await failed.rollback()
    await _publish(other, *range(4))
    collector = Collector()

    async def has_read() -> bool:
        try:
            await drain(outbox, collector, "broker")
        except Exception:  # the first statement on each of the connections that ended
            return False
        return len(collector.messages) >= 4

    await eventually(has_read)
    assert collector.payloads == list(range(4))


@MODES
async def test_a_message_in_hand_does_not_carry_the_old_position_over(
    server: PostgresServer, outbox: Outbox, other: Outbox, tmp_path: Path, *, transactional: bool
) -> None:
    collector, stop = Collector(), asyncio.Event()
    began, go_on = asyncio.Event(), asyncio.Event()

    async def handle(message: OutboxMessage, session: AsyncSession | None = None) -> None:
        if message.payload == "in flight":
            began.set()
            await go_on.wait()
        await collector(message)

    running = asyncio.create_task(
        outbox.run(handle, "broker", poll_interval=0.2, stop_event=stop, transactional=transactional)
    )
    await _publish(outbox, "kept")
    await eventually(lambda: collector.payloads == ["kept"])
    dump(server, tmp_path / "dump.sql")
    await _publish(outbox, *["forgotten"] * 3)
    await eventually(lambda: len(collector.messages) == 4)
    await _publish(outbox, "in flight")
    await asyncio.wait_for(began.wait(), 30)
    await _go_back(server, tmp_path / "dump.sql")
    await _publish(other, *[f"new {number}" for number in range(6)])
    go_on.set()
    await eventually(lambda: {f"new {number}" for number in range(6)} <= set(collector.payloads))
    stop.set()
    await asyncio.wait_for(running, 20)

"""A dump taken in the middle of consumption and restored into another cluster: nothing lost, nothing skipped."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables
from faststream_outbox.testing.postgres import PostgresServer
from tests.log.clusters import DATABASE, carry, dump, emptied, next_xid, restore, start, use_up
from tests.log.opened import Collector, ask, delivered, put
from tests.waiting import eventually

pytestmark = pytest.mark.slow

Xid = Literal["lower", "equal", "higher"]
RETRYING, PARKED, DONE, UNREAD = "x://retrying", "x://parked", "x://done", "x://unread"


class Choosing:
    """Gives up what says so, and tries the rest again."""

    def get_next_attempt_delay(self, *, exception: BaseException | None = None, **_: Any) -> float | None:
        return None if "for good" in str(exception) else 1.0


@pytest.fixture(scope="module")
def first() -> Iterator[PostgresServer]:
    with start() as server:
        yield server


@pytest.fixture(scope="module")
def second() -> Iterator[PostgresServer]:
    with start() as server:
        yield server


@pytest.fixture
def source(first: PostgresServer) -> PostgresServer:
    """The cluster that the log is in, with an empty database."""
    return emptied(first)


@pytest.fixture
def target(second: PostgresServer) -> PostgresServer:
    """The cluster that the log is carried to, with an empty database."""
    return emptied(second)


def _outbox(server: PostgresServer, *, partitioned: bool = False) -> Outbox:
    engine = create_async_engine(server.dsn(DATABASE))
    tables = make_log_tables(MetaData(), partitioned=partitioned)
    return Outbox(engine, tables=tables, lease_ttl_seconds=1.0, retry_strategy=Choosing())


async def _closed(outbox: Outbox) -> None:
    await outbox.cleanup()
    await outbox.engine.dispose()


@pytest.fixture
async def old(source: PostgresServer) -> AsyncIterator[Outbox]:
    """The log in the first cluster."""
    outbox = _outbox(source)
    await outbox.setup()
    yield outbox
    await _closed(outbox)


@pytest.fixture
async def new(target: PostgresServer) -> AsyncIterator[Outbox]:
    """The log in the second cluster; its tables come with the dump."""
    outbox = _outbox(target)
    yield outbox
    await _closed(outbox)


def _set_apart(source: PostgresServer, target: PostgresServer, xid: Xid) -> None:
    """Let the second cluster be ahead of the first in transaction ids, or behind, or level."""
    match xid:
        case "lower":
            use_up(source, next_xid(target) + 5000)
        case "higher":
            use_up(target, next_xid(source) + 5000)
        case "equal":
            use_up(target, next_xid(source))
            use_up(source, next_xid(target))


async def _fail(message: OutboxMessage) -> None:
    if message.payload == 1 and message.uri == RETRYING:
        raise RuntimeError("for now")
    if message.payload == 1 and message.uri == PARKED:
        raise RuntimeError("for good")


async def _consume_half(outbox: Outbox) -> None:
    """Leave handled, retrying, deferred, parked and unread messages behind; of these, some not sequenced."""
    await put(outbox, DONE, 1)
    await put(outbox, RETRYING, 1, 2)
    await put(outbox, PARKED, 1, 2)
    await put(outbox, RETRYING, 3)
    assert await outbox.dispatch(_fail, "broker")
    states = [(deferral.key, deferral.state) for deferral in await outbox.parked.list("broker", state=None)]
    assert states == [(RETRYING, "retry"), (RETRYING, "deferred"), (PARKED, "parked"), (RETRYING, "deferred")]
    await put(outbox, UNREAD, 1, 2)
    await outbox.client.sequencer.catch_up()
    await put(outbox, UNREAD, 3)


async def _gaps(engine: AsyncEngine) -> int:
    open_ones = "select lows from outbox_gaps union all select lows from outbox_head"
    return int((await ask(engine, f"select coalesce(sum(cardinality(lows)), 0) from ({open_ones}) g"))[0][0])


async def _read_until(outbox: Outbox, count: int, group: str = "broker") -> Collector:
    """What a running group is given, until it has so many messages and the log nothing more for it."""
    collector, stop = Collector(), asyncio.Event()
    running = asyncio.create_task(outbox.run(collector, group, concurrency=2, poll_interval=0.1, stop_event=stop))
    await eventually(lambda: len(collector.messages) >= count)

    async def is_at_the_end() -> bool:
        # Not a token of the last message: that is about its slot alone, and the other member may be behind.
        return not any(lag.messages for lag in await outbox.lag(group))

    await eventually(is_at_the_end)
    stop.set()
    await asyncio.wait_for(running, 30)
    return collector


@pytest.mark.parametrize("xid", ["lower", "equal", "higher"])
async def test_the_group_goes_on_where_it_stood(
    xid: Xid, source: PostgresServer, target: PostgresServer, old: Outbox, new: Outbox, tmp_path: Path
) -> None:
    _set_apart(source, target, xid)
    await _consume_half(old)
    async with old.engine.connect() as writer:
        await old.publish(writer, OutboxMessage(UNREAD, "never committed there"))
        await put(old, DONE, 2)
        await old.client.sequencer.catch_up()
        assert await _gaps(old.engine) == 1, "there was to be a gap in the dump"
        carry(source, target, tmp_path / "dump.sql")
        await writer.commit()
    await put(new, RETRYING, 4)
    await put(new, UNREAD, 4)
    collector = await _read_until(new, 9)
    assert collector.of(RETRYING) == [1, 2, 3, 4]
    assert collector.of(UNREAD) == [1, 2, 3, 4]
    assert collector.of(DONE) == [2]
    assert collector.of(PARKED) == []
    assert [deferral.message and deferral.message.payload for deferral in await new.parked.list("broker")] == [1]


@pytest.mark.parametrize("xid", ["lower", "equal", "higher"])
async def test_a_gap_in_the_dump_is_given_up_in_time(
    xid: Xid, source: PostgresServer, target: PostgresServer, old: Outbox, new: Outbox, tmp_path: Path
) -> None:
    _set_apart(source, target, xid)
    async with old.engine.connect() as writer:
        await old.publish(writer, OutboxMessage(UNREAD, "never committed there"))
        for number in range(3):
            # The second tick after it gives the gap its bound: a transaction id of this cluster.
            await put(old, DONE, number)
            await old.client.sequencer.catch_up()
        carry(source, target, tmp_path / "dump.sql")
        await writer.rollback()

    async def is_gone() -> bool:
        await put(new, DONE, "and on")
        await new.client.sequencer.catch_up()
        return await _gaps(new.engine) == 0

    assert await _gaps(new.engine) == 1
    await eventually(is_gone)


@pytest.mark.parametrize("xid", ["lower", "equal", "higher"])
async def test_a_message_that_filled_its_gap_before_the_dump_is_delivered_after_it(
    xid: Xid, source: PostgresServer, target: PostgresServer, old: Outbox, new: Outbox, tmp_path: Path
) -> None:
    """Overtaken, committed, and not in the log's order yet: only the first tick of the new cluster can find it."""
    _set_apart(source, target, xid)
    async with old.engine.connect() as writer:
        await old.publish(writer, OutboxMessage(UNREAD, "late"))
        for number in range(3):
            await put(old, DONE, number)
            assert await delivered(old, "broker") == [number]
        await writer.commit()
    carry(source, target, tmp_path / "dump.sql")
    await put(new, UNREAD, "because of it")
    assert await delivered(new, "broker") == ["late", "because of it"]


@pytest.mark.parametrize("xid", ["lower", "higher"])
async def test_a_gap_that_opens_after_the_restore_loses_nothing(
    xid: Xid, source: PostgresServer, target: PostgresServer, old: Outbox, new: Outbox, tmp_path: Path
) -> None:
    _set_apart(source, target, xid)
    await put(old, DONE, 1)
    await old.dispatch(Collector(), "broker")
    carry(source, target, tmp_path / "dump.sql")
    async with new.engine.connect() as writer:
        await new.publish(writer, OutboxMessage(UNREAD, "slow"))
        for number in range(3):
            await put(new, DONE, number)
            assert await delivered(new, "broker") == [number]
        await writer.commit()
    assert await delivered(new, "broker") == ["slow"]


@pytest.mark.parametrize("xid", ["lower", "higher"])
async def test_a_new_group_reads_the_whole_log_in_its_old_order(
    xid: Xid, source: PostgresServer, target: PostgresServer, old: Outbox, new: Outbox, tmp_path: Path
) -> None:
    _set_apart(source, target, xid)
    async with old.engine.connect() as writer:
        await old.publish(writer, OutboxMessage(DONE, "overtaken"))
        await put(old, DONE, 1)
        await old.client.sequencer.catch_up()
        await writer.commit()
    await put(old, DONE, 2)
    before = await delivered(old, "before")
    carry(source, target, tmp_path / "dump.sql")
    await put(new, DONE, 3)
    assert before == [1, "overtaken", 2]
    assert await delivered(new, "after") == [*before, 3]


@pytest.mark.parametrize("xid", ["lower", "higher"])
async def test_a_dump_while_the_group_is_running_loses_nothing(
    xid: Xid, source: PostgresServer, target: PostgresServer, old: Outbox, new: Outbox, tmp_path: Path
) -> None:
    """Whatever was handled while the dump was taken may come again; nothing may be left out or change its order."""
    _set_apart(source, target, xid)
    uris = [f"x://key/{number}" for number in range(20)]
    for number in range(40):
        async with old.engine.begin() as connection:
            await old.publish(connection, *[OutboxMessage(uri, number) for uri in uris])
    there, stop = Collector(), asyncio.Event()

    async def slowly(message: OutboxMessage) -> None:
        await asyncio.sleep(0.002)
        await there(message)

    running = asyncio.create_task(old.run(slowly, "broker", concurrency=2, stop_event=stop))
    await eventually(lambda: len(there.messages) > 50)
    await asyncio.to_thread(dump, source, tmp_path / "dump.sql")
    handled = len(there.messages)
    assert handled < len(uris) * 40, "everything was handled before the dump was over"
    stop.set()
    await asyncio.wait_for(running, 30)
    restore(target, tmp_path / "dump.sql")
    here = await _read_until(new, len(uris) * 40 - handled)
    done = Collector()
    done.messages = there.messages[:handled]
    for uri in uris:
        again = here.of(uri)
        assert again == list(range(40 - len(again), 40)), f"{uri}: {again}"
        assert len(again) >= 40 - len(done.of(uri)), uri


async def test_a_log_in_partitions_is_carried_too(
    source: PostgresServer, target: PostgresServer, tmp_path: Path
) -> None:
    old, new = _outbox(source, partitioned=True), _outbox(target, partitioned=True)
    try:
        await old.setup()
        await old.partitions(10).ensure()
        await put(old, UNREAD, *range(15))
        await old.dispatch(Collector(), "broker", batch_size=5)
        carry(source, target, tmp_path / "dump.sql")
        await new.partitions(10).ensure()
        await put(new, UNREAD, *range(15, 30))
        assert await delivered(new, "broker") == list(range(5, 30))
    finally:
        await _closed(old)
        await _closed(new)

"""A dump taken in the middle of consumption and restored into another cluster: nothing lost, nothing skipped."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox.log import Outbox, OutboxMessage, make_log_tables
from faststream_outbox.testing.postgres import PostgresServer
from tests.log.clusters import DATABASE, carry, dump, emptied, next_xid, restore, start, use_up
from tests.log.opened import Collector, ask, delivered, put, reading
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


@dataclass
class Move:
    """A log in one cluster, and its place in another one, where the tables come with the dump."""

    source: PostgresServer
    target: PostgresServer
    file: Path
    old: Outbox
    new: Outbox

    @classmethod
    @asynccontextmanager
    async def prepared(
        cls, source: PostgresServer, target: PostgresServer, file: Path, *, partitioned: bool = False
    ) -> AsyncGenerator["Move"]:
        outboxes = [
            Outbox(
                create_async_engine(emptied(server).dsn(DATABASE)),
                tables=make_log_tables(MetaData(), partitioned=partitioned),
                lease_ttl_seconds=1.0,
                retry_strategy=Choosing(),
            )
            for server in (source, target)
        ]
        await outboxes[0].setup()
        yield cls(source, target, file, *outboxes)
        for outbox in outboxes:
            await outbox.cleanup()
            await outbox.engine.dispose()

    def carry(self) -> None:
        carry(self.source, self.target, self.file)


@pytest.fixture
async def move(first: PostgresServer, second: PostgresServer, tmp_path: Path, xid: Xid) -> AsyncIterator[Move]:
    """A move to a cluster that is ahead of the first in transaction ids, or behind, or level."""
    async with Move.prepared(first, second, tmp_path / "dump.sql") as move:
        match xid:
            case "lower":
                use_up(first, next_xid(second) + 5000)
            case "higher":
                use_up(second, next_xid(first) + 5000)
            case "equal":
                use_up(second, next_xid(first))
                use_up(first, next_xid(second))
        yield move


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
    collector = Collector()
    async with reading(outbox, collector, group, concurrency=2, poll_interval=0.1):
        await eventually(lambda: len(collector.messages) >= count)

        async def is_at_the_end() -> bool:
            # Not a token of the last message: that is about its slot alone, and the other member may be behind.
            return not any(lag.messages for lag in await outbox.lag(group))

        await eventually(is_at_the_end)
    return collector


ALL = pytest.mark.parametrize("xid", ["lower", "equal", "higher"])
APART = pytest.mark.parametrize("xid", ["lower", "higher"])


@ALL
async def test_the_group_goes_on_where_it_stood(move: Move) -> None:
    old, new = move.old, move.new
    await _consume_half(old)
    async with old.engine.connect() as writer:
        await old.publish(writer, OutboxMessage(UNREAD, "never committed there"))
        await put(old, DONE, 2)
        await old.client.sequencer.catch_up()
        assert await _gaps(old.engine) == 1, "there was to be a gap in the dump"
        move.carry()
        await writer.commit()
    await put(new, RETRYING, 4)
    await put(new, UNREAD, 4)
    collector = await _read_until(new, 9)
    assert collector.of(RETRYING) == [1, 2, 3, 4]
    assert collector.of(UNREAD) == [1, 2, 3, 4]
    assert collector.of(DONE) == [2]
    assert collector.of(PARKED) == []
    assert [deferral.message and deferral.message.payload for deferral in await new.parked.list("broker")] == [1]


@ALL
async def test_a_gap_in_the_dump_is_given_up_in_time(move: Move) -> None:
    async with move.old.engine.connect() as writer:
        await move.old.publish(writer, OutboxMessage(UNREAD, "never committed there"))
        for number in range(3):
            # The second tick after it gives the gap its bound: a transaction id of this cluster.
            await put(move.old, DONE, number)
            await move.old.client.sequencer.catch_up()
        move.carry()
        await writer.rollback()

    async def is_gone() -> bool:
        await put(move.new, DONE, "and on")
        await move.new.client.sequencer.catch_up()
        return await _gaps(move.new.engine) == 0

    assert await _gaps(move.new.engine) == 1
    await eventually(is_gone)


async def _overtaken(outbox: Outbox) -> None:
    """A message whose transaction began before, and commits after, three others that a group reads."""
    async with outbox.engine.connect() as writer:
        await outbox.publish(writer, OutboxMessage(UNREAD, "late"))
        for number in range(3):
            await put(outbox, DONE, number)
            assert await delivered(outbox, "broker") == [number]
        await writer.commit()


@ALL
async def test_a_message_that_filled_its_gap_before_the_dump_is_delivered_after_it(move: Move) -> None:
    """Overtaken, committed, and not in the log's order yet: only the first tick of the new cluster can find it."""
    await _overtaken(move.old)
    move.carry()
    await put(move.new, UNREAD, "because of it")
    assert await delivered(move.new, "broker") == ["late", "because of it"]


@APART
async def test_a_gap_that_opens_after_the_restore_loses_nothing(move: Move) -> None:
    await put(move.old, DONE, 1)
    await move.old.dispatch(Collector(), "broker")
    move.carry()
    await _overtaken(move.new)
    assert await delivered(move.new, "broker") == ["late"]


@APART
async def test_a_new_group_reads_the_whole_log_in_its_old_order(move: Move) -> None:
    await _overtaken(move.old)
    await put(move.old, DONE, "later")
    before = await delivered(move.old, "before")
    move.carry()
    await put(move.new, DONE, "last")
    assert before == [0, 1, 2, "late", "later"]
    assert await delivered(move.new, "after") == [*before, "last"]


@APART
async def test_a_dump_while_the_group_is_running_loses_nothing(move: Move) -> None:
    """Whatever was handled while the dump was taken may come again; nothing may be left out or change its order."""
    uris = [f"x://key/{number}" for number in range(20)]
    for number in range(40):
        async with move.old.engine.begin() as connection:
            await move.old.publish(connection, *[OutboxMessage(uri, number) for uri in uris])
    there = Collector()

    async def slowly(message: OutboxMessage) -> None:
        await asyncio.sleep(0.002)
        await there(message)

    async with reading(move.old, slowly, "broker", concurrency=2):
        await eventually(lambda: len(there.messages) > 50)
        await asyncio.to_thread(dump, move.source, move.file)
        handled = len(there.messages)
        assert handled < len(uris) * 40, "everything was handled before the dump was over"
    restore(move.target, move.file)
    here = await _read_until(move.new, len(uris) * 40 - handled)
    done = Collector()
    done.messages = there.messages[:handled]
    for uri in uris:
        again = here.of(uri)
        assert again == list(range(40 - len(again), 40)), f"{uri}: {again}"
        assert len(again) >= 40 - len(done.of(uri)), uri


async def test_a_log_in_partitions_is_carried_too(
    first: PostgresServer, second: PostgresServer, tmp_path: Path
) -> None:
    async with Move.prepared(first, second, tmp_path / "dump.sql", partitioned=True) as move:
        await move.old.partitions(10).ensure()
        await put(move.old, UNREAD, *range(15))
        await move.old.dispatch(Collector(), "broker", batch_size=5)
        move.carry()
        await move.new.partitions(10).ensure()
        await put(move.new, UNREAD, *range(15, 30))
        assert await delivered(move.new, "broker") == list(range(5, 30))

"""The sequencer: every committed position in exactly one tick, in causal order, and no gap that blocks."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox._internal.log.ordering import sequencer
from tests.log.by_hand import ticking
from tests.log.rig import LogRig


@pytest.fixture
async def foreigner(database_url: URL) -> AsyncIterator[AsyncConnection]:
    """A connection to another database of the same cluster."""
    engine = create_async_engine(database_url.set(database="postgres"), poolclass=NullPool)
    async with engine.connect() as connection:
        yield connection
    await engine.dispose()


async def test_positions_of_one_transaction_become_one_tick_of_one_range(driver_rig: LogRig) -> None:
    await driver_rig.put("a", *range(5))
    assert await driver_rig.tick() == 5
    ticks = await driver_rig.ask("select lows, highs, count from {ticks}")
    assert ticks == [{"lows": [1], "highs": [5], "count": 5}]


async def test_tick_of_nothing_makes_no_tick(driver_rig: LogRig) -> None:
    await driver_rig.put("a", 1)
    await driver_rig.tick()
    assert await driver_rig.tick() == 0
    assert len(await driver_rig.order()) == 1


async def test_numbers_of_a_rolled_back_transaction_are_forgotten(rig: LogRig) -> None:
    writer = await rig.writer()
    await writer.publish("a", 1, 2)
    await writer.rollback()
    await rig.put("a", 3)
    await rig.forget_gaps()
    assert await rig.ticked() == [3]


async def test_gap_is_not_forgotten_by_the_tick_that_bounds_it(rig: LogRig) -> None:
    """Its owner may have an xid above the first tick's own."""
    writer = await rig.writer()
    await rig.put("a", 0)
    await writer.publish("a", 1)
    await rig.put("a", 2)
    await rig.tick()
    assert await rig.gaps() == [(2, 2)]
    await rig.tick()
    assert await rig.gaps() == [(2, 2)]
    await writer.commit()


async def test_part_of_a_gap_that_fills_leaves_the_rest(rig: LogRig) -> None:
    first, second = await rig.writer(), await rig.writer()
    await first.publish("a", 1, 2)
    await second.publish("a", 3, 4)
    await first.publish("a", 5)
    await rig.put_apart("a", 6)
    await second.commit()
    await rig.sequence()
    assert await rig.gaps() == [(1, 2), (5, 5)]
    await first.commit()
    await rig.sequence()
    assert await rig.ticked() == [6, 3, 4, 1, 2, 5]
    await rig.forget_gaps()


async def test_message_first_written_inside_a_savepoint_is_not_lost(rig: LogRig) -> None:
    """The transaction's xid and not the savepoint's is what a gap waits for."""
    writer = await rig.writer()
    await writer.execute("savepoint s")
    await writer.publish("a", 1)
    await writer.execute("release savepoint s")
    await rig.put("a", 2)
    for _ in range(4):
        await rig.tick()
        await rig.put("a", 0)
    await writer.commit()
    await rig.sequence()
    assert 1 in await rig.ticked()


async def test_writer_in_another_database_only_delays_forgetting(rig: LogRig, foreigner: AsyncConnection) -> None:
    await foreigner.execute(text("select pg_current_xact_id()"))
    writer = await rig.writer()
    await writer.publish("a", 1)
    await writer.rollback()
    for number in range(2, 5):
        await rig.put_apart("a", number)
        assert await rig.ticked() == [*range(2, number + 1)]
    assert await rig.gaps() == [(1, 1)]
    await foreigner.rollback()
    await rig.forget_gaps()


async def test_ticker_that_finds_the_head_taken_goes_away(rig: LogRig) -> None:
    other = await rig.another()
    await rig.put("a", 1)
    async with ticking(rig) as holder:
        await holder.lock()
        assert await rig.tick(other) is None
        await holder.end()
    assert await rig.tick(other) == 1


async def test_ticker_that_must_not_go_away_waits_for_the_head(rig: LogRig) -> None:
    other = await rig.another()
    async with ticking(rig) as holder:
        await holder.lock()
        await rig.put("a", 1)
        waiting = asyncio.create_task(other.client.sequencer.tick(wait=True))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await holder.end()
    assert await waiting == 1


async def test_backlog_is_sequenced_in_portions(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencer, "TICK_LIMIT", 4)
    small = await rig.another()
    await rig.put("a", *range(10))
    await rig.sequence(small)
    ticks = await rig.ask("select count from {ticks} order by tick")
    assert [row["count"] for row in ticks] == [4, 4, 2]


@pytest.mark.parametrize("is_held", [False, True], ids=["alone", "beside an older transaction"])
async def test_late_messages_beyond_the_limit_precede_anything_fresh(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """Also where an older transaction keeps gaps from being looked at for the last time."""
    monkeypatch.setattr(sequencer, "TICK_LIMIT", 3)
    small = await rig.another()
    older, late = await rig.writer(), await rig.writer()
    if is_held:
        await older.xid()
    mine = await late.publish("a", *range(8))
    await rig.put("b", "first")
    for _ in range(3):
        await rig.sequence(small)
    await late.commit()
    (caused,) = (await rig.put("a", "caused by the late ones")).positions
    await rig.sequence(small)
    order = await rig.ticked()
    assert order == [9, *mine, caused]
    await older.rollback()


async def test_open_gaps_names_the_session_that_holds_one(rig: LogRig) -> None:
    writer = await rig.writer()
    await writer.publish("a", 1)
    pid = (await writer.connection.execute(text("select pg_backend_pid()"))).scalar_one()
    await rig.put_apart("a", 2)
    gaps = await rig.outbox.open_gaps(age=0.0)
    assert (1, 1, pid) in [(gap["lo"], gap["hi"], gap["pid"]) for gap in gaps]
    await writer.rollback()

"""What gaps cost: looked at when one may have filled, and only then."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import URL, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from faststream_outbox import events
from faststream_outbox._internal.log.ordering import sequencer
from tests.log.by_hand import statement, values
from tests.log.opened import Collector, reading
from tests.log.rig import LogRig
from tests.sql.plans import nodes
from tests.waiting import eventually


@pytest.fixture
async def foreigner(database_url: URL) -> AsyncIterator[AsyncConnection]:
    """A transaction in another database of the cluster that has an xid and does nothing."""
    engine = create_async_engine(database_url.set(database="postgres"), poolclass=NullPool)
    async with engine.connect() as connection:
        await connection.execute(text("select pg_current_xact_id()"))
        yield connection
    await engine.dispose()


async def make_gaps(rig: LogRig, count: int) -> None:
    """Numbers that were rolled back, each between two that were not; bounded."""
    writer = await rig.writer()
    for _ in range(count):
        await writer.publish("dead", 0)
        await writer.rollback()
        await rig.put("k", 0)
    for _ in range(3):
        await rig.tick()


async def plan(rig: LogRig, *, owners: bool = False) -> dict[str, Any]:
    """What a tick does now: its plan with counts; it is not kept."""
    tick = statement(rig)
    async with rig.engine.connect() as connection:
        for first in ("lock_head", "owners") if owners else ("lock_head",):
            await connection.exec_driver_sql(statement(rig, first).dollar)
        for setting in ("enable_seqscan", "enable_bitmapscan", "jit"):
            await connection.exec_driver_sql(f"set local {setting} = off")
        explained = await connection.exec_driver_sql(
            f"explain (analyze, buffers, timing off, format json) {tick.dollar}", tick.arguments(await values(rig))
        )
        found = explained.scalar_one()
        await connection.rollback()
    tree: dict[str, Any] = found[0]["Plan"]
    return tree


def looks(tree: dict[str, Any], table: str) -> int:
    """How often a table was searched within gaps."""
    return sum(
        int(node["Actual Loops"])
        for node in nodes(tree)
        if node.get("Relation Name") == table and ".hi)" in str(node.get("Index Cond", ""))
    )


def not_looked_at(rig: LogRig) -> Callable[[], Awaitable[bool]]:
    """Whether a tick looks into no gap; what other tests do in the cluster may make one or another do so."""

    async def ask() -> bool:
        await rig.tick()
        return looks(await plan(rig), rig.outbox.tables.log.name) == 0

    return ask


@pytest.mark.slow
async def test_gap_is_looked_at_when_what_could_own_it_has_ended_and_not_before(
    rig: LogRig, foreigner: AsyncConnection
) -> None:
    await make_gaps(rig, 30)
    assert len(await rig.gaps()) == 30
    # A transaction that began later is none that could.
    await rig.put("k", 1)
    await eventually(not_looked_at(rig))
    await foreigner.rollback()
    assert looks(await plan(rig), rig.outbox.tables.log.name) == 30


@pytest.mark.slow
async def test_tick_does_not_read_through_gaps_that_it_does_not_look_at(
    rig: LogRig, foreigner: AsyncConnection
) -> None:
    """An hour of rollbacks beside a long foreign transaction makes very many gaps."""
    await make_gaps(rig, 5)
    xid = (await foreigner.execute(text("select pg_current_xact_id()::text::bigint"))).scalar_one()
    await rig.ask(
        "insert into {gap_table} (bound, lo, lows, highs, since)"
        " select cast(:bound as bigint), -n, array[-n], array[-n], now() from generate_series(1, 50000) n",
        bound=xid + 2,
    )
    await rig.ask("analyze {gap_table}")
    await rig.put("k", 1)
    await rig.tick()
    await rig.tick()
    tree = await plan(rig)
    gaps = rig.outbox.tables.gaps.name
    walked = sum(
        (float(node.get("Actual Rows", 0)) + float(node.get("Rows Removed by Filter", 0))) * float(node["Actual Loops"])
        for node in nodes(tree)
        if node.get("Relation Name") == gaps and str(node["Node Type"]).endswith("Scan")
    )
    assert walked < 1000


@pytest.mark.slow
async def test_message_is_found_at_once_though_a_gap_has_been_open_for_long(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks in vain slow down, but only those for gaps: a number that is newly drawn is worth a look at once."""
    monkeypatch.setattr(sequencer, "LONGEST_WAIT", 3600.0)
    owner = await rig.writer()
    await owner.publish("other", 0)
    await rig.put("k", 0)
    collector = Collector()
    async with reading(rig.outbox, collector, "g"):
        await eventually(lambda: len(collector.payloads) == 1)
        loop = asyncio.get_running_loop()
        pace = rig.outbox.client.ticker.pace

        def is_far_away() -> bool:
            """The next look for the gap is far away."""
            pace.empty = 1_000_000
            return pace.again_at > loop.time() + 1000

        for number in range(1, 4):
            await eventually(is_far_away)
            writer = await rig.writer()
            await writer.publish("k", number)
            # Nothing of this process learns of a commit that goes past SQLAlchemy.
            await writer.connection.exec_driver_sql("commit")
            await eventually(lambda expected=number: collector.payloads[-1] == expected)
    await owner.rollback()


async def test_foreign_transaction_does_not_keep_a_gap_that_nobody_can_own(
    rig: LogRig, foreigner: AsyncConnection
) -> None:
    """A million of them are forgotten in a few ticks, without another look."""
    await make_gaps(rig, 30)
    assert len(await rig.gaps()) == 30
    await eventually(not_looked_at(rig))
    assert looks(await plan(rig, owners=True), rig.outbox.tables.log.name) == 0
    await rig.outbox.client.sequencer.tick(owners=True)
    assert await rig.gaps() == []


async def test_nothing_fresh_waits_for_gaps_that_are_only_to_be_forgotten(
    rig: LogRig, foreigner: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "SWEEP_LIMIT", 1)
    for _ in range(4):
        await make_gaps(rig, 2)
    tick = rig.outbox.client.sequencer.tick
    (fresh,) = (await rig.put("k", 1)).positions
    await tick(owners=True)
    assert fresh in await rig.ticked()
    left = len(await rig.gaps())
    assert left >= 5
    assert rig.outbox.client.sequencer.has_to_sweep
    while rig.outbox.client.sequencer.has_to_sweep:
        await tick(owners=True)
        assert len(await rig.gaps()) < left or not left
        left = len(await rig.gaps())
    assert await rig.gaps() == []


async def test_ticker_forgets_gaps_under_a_foreign_transaction_by_itself(
    rig: LogRig, foreigner: AsyncConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequencer, "OWNER_SECONDS", 0.1)
    await make_gaps(rig, 1)
    async with reading(rig.outbox, Collector(), "g"):

        async def is_forgotten() -> bool:
            return not await rig.gaps()

        await eventually(is_forgotten)


@pytest.mark.slow
async def test_very_many_gaps_are_looked_into_in_slices_and_nothing_fresh_comes_before_the_last(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long publisher ends that may own any of them: its message comes first, and what follows from it after it."""
    monkeypatch.setattr(sequencer, "RANGE_LIMIT", 5)
    owner = await rig.writer()
    await owner.publish("other", 0)
    for _ in range(10):
        await make_gaps(rig, 3)
    (cause,) = await owner.publish("k", "cause")
    await rig.put("other", 1)
    for _ in range(3):
        await rig.sequence()
    await owner.commit()
    (effect,) = (await rig.put("k", "effect")).positions
    ticks = 0
    while effect not in await rig.ticked():
        tree = await plan(rig)
        assert looks(tree, rig.outbox.tables.log.name) <= 5 + 3
        await rig.tick()
        ticks += 1
    assert ticks >= 4
    order = await rig.ticked()
    assert order.index(cause) < order.index(effect)
    assert sorted(order) == await rig.committed()


async def test_old_gap_is_told_with_the_sessions_that_may_hold_it(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequencer, "OLD_GAP_SECONDS", 0.1)
    monkeypatch.setattr(sequencer.Sequencer.old_gaps, "__defaults__", (0.1,))
    writer = await rig.writer()
    await writer.publish("k", 1)
    pid = (await writer.connection.execute(text("select pg_backend_pid()"))).scalar_one()
    await rig.put("k", 2)
    async with reading(rig.outbox, Collector(), "g"):
        await eventually(lambda: rig.reported(events.GapOld))
    await writer.rollback()
    assert any(session.startswith(f"{pid} ") for session in rig.reported(events.GapOld)[0].sessions)

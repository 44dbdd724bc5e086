"""Why the bound of a gap is what it is: each easier choice loses a message, or its order, in a schedule that happens.

Every schedule runs twice: with the statement as it is, and with the easier choice in its place. The second
run must fail, or the schedule would prove nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from faststream_outbox._internal.sql.statements import Statement
from tests.log.by_hand import statement, ticking
from tests.log.rig import LogRig

Schedule = Callable[[LogRig, Statement | None], Awaitable[bool]]
"""Writers and ticks in a certain order; whether a message was lost."""


def with_bound_at_once(rig: LogRig, bound: str) -> Statement:
    """The statement with a gap's bound given by the tick that finds it, not by a later one."""
    gaps = rig.outbox.client.names.places()["gap_table"]
    return statement(
        rig,
        part_1="), last as materialized (",
        by_1=f"), early as (insert into {gaps} (bound, lo, lows, highs, since) select (select {bound} from me), "
        "o.lows[1], o.lows, o.highs, now() from opened o where o.lows is not null\n), last as materialized (",
        part_2="coalesce(o.lows, '{}'), coalesce(o.highs, '{}')",
        by_2="'{}', '{}'",
    )


async def an_xid_in_progress_at_the_snapshots_end(rig: LogRig, scan: Statement | None) -> bool:
    """The owner of a missed number is not below the snapshot's xmax, as nothing with a larger xid has ended."""
    early, owner = await rig.writer(), await rig.writer()
    await early.xid()
    (missed,) = await owner.publish("k", "missed")
    await early.publish("k", "seen")
    await early.commit()
    async with ticking(rig, scan) as tick:
        for _ in range(4):
            await tick()
        await owner.commit()
        await tick()
    await early.close()
    await owner.close()
    return missed not in await rig.ticked()


async def an_xid_given_out_after_the_ticks_own(rig: LogRig, scan: Statement | None) -> bool:
    """The owner of a missed number has a larger xid than the tick that misses it."""
    early, owner = await rig.writer(), await rig.writer()
    await early.xid()
    async with ticking(rig, scan) as tick:
        await tick.lock()
        (missed,) = await owner.publish("k", "missed")
        await early.publish("k", "seen")
        await early.commit()
        await tick.scan()
        await tick.end()
        for _ in range(3):
            await tick()
        await owner.commit()
        await tick()
    await early.close()
    await owner.close()
    return missed not in await rig.ticked()


SCHEDULES = [an_xid_in_progress_at_the_snapshots_end, an_xid_given_out_after_the_ticks_own]


async def may_lose(rig: LogRig, schedule: Schedule, scan: Statement) -> bool:
    """Whether the schedule loses a message; tried again, as what ends elsewhere in the cluster may save it."""
    for _ in range(30):
        if await schedule(rig, scan):
            return True
    return False


@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_nothing_is_lost(rig: LogRig, schedule: Schedule) -> None:
    for _ in range(10):
        assert not await schedule(rig, None)


async def test_bound_of_the_snapshots_end_would_lose_a_message(rig: LogRig) -> None:
    wrong = with_bound_at_once(rig, "pg_snapshot_xmax(now)::text::bigint")
    assert await may_lose(rig, an_xid_in_progress_at_the_snapshots_end, wrong)


async def test_bound_of_the_ticks_own_xid_would_lose_a_message(rig: LogRig) -> None:
    wrong = with_bound_at_once(rig, "xid")
    assert await may_lose(rig, an_xid_given_out_after_the_ticks_own, wrong)


async def test_forgetting_below_the_snapshots_end_would_lose_a_message(rig: LogRig) -> None:
    wrong = statement(
        rig,
        part_1="greatest(pg_snapshot_xmin(pg_current_snapshot())::text::bigint,",
        by_1="greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,",
    )
    assert await may_lose(rig, an_xid_in_progress_at_the_snapshots_end, wrong)


async def an_owner_that_stays_open(rig: LogRig, owners: Statement, manner: str) -> bool:
    """Somebody draws a number and goes on; everybody else has ended, and that is looked for. Whether it was lost."""
    owner = await rig.writer()
    if manner == "after a savepoint":
        await owner.execute("savepoint s")
        await owner.publish("k", "taken back")
        await owner.execute("rollback to savepoint s")
    (missed,) = await owner.publish("k", "missed")
    await rig.put("k", "seen")
    async with ticking(rig) as tick:
        for _ in range(4):
            await tick.lock()
            await tick.send(owners)
            await tick.scan()
            await tick.end()
        await owner.commit()
        await tick()
    await owner.close()
    return missed not in await rig.ticked()


@pytest.mark.parametrize("manner", ["plain", "after a savepoint"])
async def test_number_of_an_owner_that_stays_open_is_not_forgotten(rig: LogRig, manner: str) -> None:
    assert not await an_owner_that_stays_open(rig, statement(rig, "owners"), manner)


async def test_owners_that_are_not_looked_for_would_lose_a_message(rig: LogRig) -> None:
    wrong = statement(rig, "owners", part_1="h.mode <> 'AccessShareLock'", by_1="false")
    assert await an_owner_that_stays_open(rig, wrong, "plain")


async def a_cause_that_ends_before_its_effect_begins(rig: LogRig, scan: Statement | None) -> tuple[int, int]:
    """Ticks of the messages of a long transaction and of one that began after its end."""
    cause = await rig.writer()
    (first,) = await cause.publish("k", "cause")
    await rig.put("other", 1)
    async with ticking(rig, scan) as tick:
        for number in range(3):
            await tick()
            await rig.put("other", number)
        await cause.commit()
        (second,) = (await rig.put("k", "effect")).positions
        await tick()
        order = {position: number for number, position in await rig.order()}
    return order.get(first, 10**9), order[second]


async def test_effect_does_not_overtake_its_cause(rig: LogRig) -> None:
    first, second = await a_cause_that_ends_before_its_effect_begins(rig, None)
    assert first <= second


async def test_looking_only_at_gaps_of_new_transactions_would_break_the_order(rig: LogRig) -> None:
    wrong = statement(
        rig,
        part_1="where pg_visible_in_snapshot(x, me.now)",
        by_1="where false",
        part_2="least((select xid from since), (select dead from me))",
        by_2="-1",
    )
    first, second = await a_cause_that_ends_before_its_effect_begins(rig, wrong)
    assert first > second


@pytest.mark.slow
async def test_later_ticks_have_larger_xids(rig: LogRig) -> None:
    """A ticker must not get its xid before the tick in front of it has looked: it bounds that tick's gaps."""
    tickers = [await rig.another() for _ in range(4)]
    stop = asyncio.Event()

    async def keep_ticking(number: int) -> None:
        while not stop.is_set():
            await tickers[number].client.sequencer.tick(wait=number % 2 == 0)

    async def keep_writing(number: int) -> None:
        for payload in range(150):
            await rig.put(f"k{number}", payload)

    running = [asyncio.create_task(keep_ticking(number)) for number in range(4)]
    await asyncio.gather(*(keep_writing(number) for number in range(4)))
    stop.set()
    await asyncio.gather(*running)
    rows = await rig.ask("select tick, xmin::text::bigint as xid from {ticks} order by tick")
    xids = [row["xid"] for row in rows]
    assert xids == sorted(xids)

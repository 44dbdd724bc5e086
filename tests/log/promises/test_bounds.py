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
"""Writers and ticks in a certain order, with one statement replaced or none; whether something went wrong."""
Wrong = Callable[[LogRig], Statement]


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


async def an_owner_that_stays_open(rig: LogRig, owners: Statement | None, *, after: str = "") -> bool:
    """Somebody draws a number and goes on; everybody else has ended, and that is looked for. Whether it was lost."""
    owner = await rig.writer()
    if after == "a savepoint":
        await owner.execute("savepoint s")
        await owner.publish("k", "taken back")
        await owner.execute("rollback to savepoint s")
    (missed,) = await owner.publish("k", "missed")
    await rig.put("k", "seen")
    async with ticking(rig) as tick:
        for _ in range(4):
            await tick.lock()
            await tick.send(owners or statement(rig, "owners"))
            await tick.scan()
            await tick.end()
        await owner.commit()
        await tick()
    await owner.close()
    return missed not in await rig.ticked()


async def an_owner_that_took_something_back(rig: LogRig, owners: Statement | None) -> bool:
    return await an_owner_that_stays_open(rig, owners, after="a savepoint")


async def a_cause_that_ends_before_its_effect_begins(rig: LogRig, scan: Statement | None) -> bool:
    """A long transaction, and one that began after its end. Whether the later one was seen first."""
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
    return order.get(first, 10**9) > order[second]


WRONG: dict[str, tuple[Schedule, Wrong]] = {
    "a bound of the snapshot's end": (
        an_xid_in_progress_at_the_snapshots_end,
        lambda rig: with_bound_at_once(rig, "pg_snapshot_xmax(now)::text::bigint"),
    ),
    "a bound of the tick's own xid": (
        an_xid_given_out_after_the_ticks_own,
        lambda rig: with_bound_at_once(rig, "xid"),
    ),
    "forgetting below the snapshot's end": (
        an_xid_in_progress_at_the_snapshots_end,
        lambda rig: statement(
            rig,
            part_1="greatest(pg_snapshot_xmin(pg_current_snapshot())::text::bigint,",
            by_1="greatest(pg_snapshot_xmax(pg_current_snapshot())::text::bigint,",
        ),
    ),
    "owners that are not looked for": (
        an_owner_that_stays_open,
        lambda rig: statement(rig, "owners", part_1="h.mode <> 'AccessShareLock'", by_1="false"),
    ),
    "looking at gaps of new transactions only": (
        a_cause_that_ends_before_its_effect_begins,
        lambda rig: statement(
            rig,
            part_1="where pg_visible_in_snapshot(x, me.now)",
            by_1="where false",
            part_2="least((select xid from since), (select dead from me))",
            by_2="-1",
        ),
    ),
}
SCHEDULES = [*dict.fromkeys(schedule for schedule, _ in WRONG.values()), an_owner_that_took_something_back]


@pytest.mark.parametrize("schedule", SCHEDULES)
async def test_nothing_is_lost_and_no_effect_overtakes_its_cause(rig: LogRig, schedule: Schedule) -> None:
    for _ in range(10):
        assert not await schedule(rig, None)


@pytest.mark.parametrize("choice", WRONG)
async def test_easier_choice_would_lose_a_message_or_its_order(rig: LogRig, choice: str) -> None:
    schedule, wrong = WRONG[choice]
    for _ in range(30):
        if await schedule(rig, wrong(rig)):
            return
        # What ends elsewhere in the cluster may have saved it.
    pytest.fail("the schedule proves nothing")


@pytest.mark.slow
async def test_later_ticks_have_larger_xids_and_none_has_a_position_of_another(rig: LogRig) -> None:
    """A ticker must not get its xid before the tick in front of it has looked: it bounds that tick's gaps."""
    tickers = [await rig.another() for _ in range(4)]
    stop = asyncio.Event()

    async def keep_ticking(number: int) -> None:
        while not stop.is_set():
            await tickers[number].client.sequencer.tick(wait=number % 2 == 0)

    async def keep_writing(number: int) -> None:
        writer = await rig.writer()
        for payload in range(150):
            await writer.publish(f"k{number}", payload)
            await (writer.rollback() if payload % 5 == 4 else writer.commit())

    running = [asyncio.create_task(keep_ticking(number)) for number in range(4)]
    await asyncio.gather(*(keep_writing(number) for number in range(4)))
    stop.set()
    await asyncio.gather(*running)
    rows = await rig.ask("select tick, xmin::text::bigint as xid from {ticks} order by tick")
    xids = [row["xid"] for row in rows]
    assert xids == sorted(xids)
    for _ in range(3):
        await rig.sequence()
    assert sorted(await rig.ticked()) == await rig.committed()

"""A position that was got can be set again: nothing is skipped and nothing forgotten, wherever the group stood."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.log import Cursor
from tests.log.opened import delivered, refuse
from tests.log.rig import LogRig

Ticks = list[list[int]]


def ranges(positions: list[int]) -> tuple[list[int], list[int]]:
    """Runs of neighbours, as a tick has them."""
    lows = [p for p in positions if p - 1 not in positions]
    highs = [p for p in positions if p + 1 not in positions]
    return lows, highs


async def lay_out(rig: LogRig, ticks: Ticks, *, transactions: list[int]) -> None:
    """A log in which these positions became visible in this order, and all other numbers were rolled back."""
    await rig.ask("truncate {log}, {ticks}, {gap_table}, {offsets}, {deferred}")
    positions = [position for tick in ticks for position in tick]
    await rig.ask(
        "insert into {log} (position, uri, slot, payload, metadata, event_id, created_at, transaction_id) "
        "select p, 'k', :slot, to_json(p), '{}', e, now() - interval '1 day', x "
        "from unnest(cast(:positions as bigint[]), cast(:ids as uuid[]), cast(:xids as bigint[])) u (p, e, x)",
        slot=slot_of("k"),
        positions=positions,
        ids=[str(UUID(int=position)) for position in positions],
        xids=[transactions[position % len(transactions)] for position in positions],
    )
    rows = [
        f"({number}, array{lows}, array{highs}, {len(tick)})"
        for number, tick in enumerate(ticks, start=1)
        for lows, highs in [ranges(sorted(tick))]
    ]
    await rig.ask(f"insert into {{ticks}} (tick, lows, highs, count) values {', '.join(rows)}")
    high = max(positions, default=0)
    await rig.ask("update {head_table} set high = :high, tick = :tick", high=high, tick=len(ticks))
    await rig.ask("select setval('{sequence_name}', :high)", high=high)


async def again(rig: LogRig, *, clean: bool = False) -> None:
    """Get the group's position and set it, perhaps with retention in between."""
    async with AsyncSession(rig.engine) as session:
        pair = await rig.outbox.get_position(session, "g")
    if clean:
        await rig.outbox.clean(older_than=timedelta(0))
    async with AsyncSession(rig.engine) as session, session.begin():
        await rig.outbox.set_position(session, "g", "", *pair)


async def ahead(rig: LogRig) -> list[int]:
    """Positions of messages that the group will be handed, in order."""
    async with AsyncSession(rig.engine) as session:
        cursor = await rig.outbox.get_cursor(session, "g")
    there = set(await rig.committed())
    return [position for tick, position in await rig.order() if (tick, position) > cursor and position in there]


@st.composite
def logs(draw: st.DrawFn) -> Ticks:
    """Some of the numbers up to twelve, in any order, cut into ticks."""
    numbers = draw(st.permutations(range(1, 13)))[: draw(st.integers(1, 10))]
    ticks: Ticks = [[]]
    for number in numbers:
        if ticks[-1] and draw(st.booleans()):
            ticks.append([])
        ticks[-1].append(number)
    return ticks


@pytest.mark.slow
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    ticks=logs(), transactions=st.lists(st.integers(1, 50), min_size=1, max_size=6), data=st.data(), clean=st.booleans()
)
async def test_wherever_a_group_stands_its_position_can_be_set_again(
    rig: LogRig, ticks: Ticks, transactions: list[int], data: st.DataObject, clean: bool
) -> None:
    await lay_out(rig, ticks, transactions=transactions)
    everything = [(number, position) for number, tick in enumerate(ticks, start=1) for position in tick]
    places: list[Any] = ["earliest", "latest", *(UUID(int=position) for _, position in everything)]
    places += [Cursor(*each) for each in everything]
    await rig.seek(data.draw(st.sampled_from(places)))
    before = await ahead(rig)
    await again(rig, clean=clean)
    assert [position for position in await ahead(rig) if position in before] == before, "some are skipped"
    if not clean:
        assert await ahead(rig) == before, "some come again"


async def test_position_before_a_message_whose_left_neighbour_is_late(rig: LogRig) -> None:
    late = await rig.writer()
    await late.publish("k", "late")
    await rig.put("k", "first", event_id=UUID(int=1))
    await rig.sequence()
    await late.commit()
    await rig.sequence()
    await rig.seek(UUID(int=1))
    await again(rig)
    assert await delivered(rig.outbox, "g") == ["first", "late"]


async def test_position_of_a_tick_that_retention_has_deleted(rig: LogRig) -> None:
    """What is left was published under a smaller transaction, and all of it is unread."""
    await lay_out(rig, [[1], [2], [3]], transactions=[10, 90, 80])
    await rig.seek(Cursor(1, 1))
    async with AsyncSession(rig.engine) as session:
        pair = await rig.outbox.get_position(session, "g")
    await rig.ask("delete from {log} where position = 1")
    await rig.ask("delete from {ticks} where tick = 1")
    async with AsyncSession(rig.engine) as session, session.begin():
        await rig.outbox.set_position(session, "g", "", *pair)
    assert await delivered(rig.outbox, "g") == [2, 3]


@pytest.mark.parametrize("place", [Cursor(1, 2), "earliest"], ids=["where it stands", "before it"])
async def test_what_waits_before_the_place_goes_on_waiting(rig: LogRig, place: Any) -> None:
    """It was neither handled nor is it read again: nobody but the retry would ever hand it out."""
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=3600))
    await rig.put("a", 1)
    await rig.put_apart("b", 2)
    await outbox.dispatch(refuse, "g")
    await rig.ask("delete from {deferred} where position = 2")
    await rig.seek(place)
    await rig.ask("update {deferred} set due = now()")
    assert 1 in await delivered(outbox, "g")


async def test_what_waits_is_passed_by_a_group_that_is_put_further_on(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=0.01))
    await rig.put_apart("a", 1)
    await outbox.dispatch(refuse, "g")
    await rig.put_apart("a", 2)
    await rig.seek("latest")
    assert await rig.deferrals() == []

"""Lag: exact where it is little or can be added up, and else an estimate that says so."""

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from faststream_outbox._internal.log.admin import positions as lag
from faststream_outbox._internal.log.admin.positions import Sample
from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox.log import OutboxMessage
from tests.log.opened import Collector, delivered
from tests.log.rig import LogRig

COUNT, PER_TICK = 300, 30


async def test_lag_counts_what_the_filter_matches_and_is_not_read(rig: LogRig) -> None:
    for number in range(10):
        await rig.put(f"mine/{number}", number)
        await rig.put("other", number)
    read = (await rig.outbox.dispatch(Collector(), "g", "mine", batch_size=4)).handled
    await rig.outbox.dispatch(Collector(), "all")
    await rig.ask("update {ticks} set at = at - interval '1 hour'")
    lags = {(lag.group, lag.uri): lag for lag in await rig.outbox.lag()}
    assert (lags["g", "mine"].messages, lags["all", ""].messages) == (10 - read, 0)
    assert 3600 <= lags["g", "mine"].seconds < 3700
    assert lags["all", ""].seconds == 0


async def test_lag_names_an_owner_only_while_its_lease_lives(rig: LogRig) -> None:
    await rig.put("k", 1)
    reader = await rig.reader(fixed=(0, 255), lease_ttl_seconds=3600.0)
    await reader.arrange()
    (lag,) = await rig.outbox.lag("g")
    assert lag.owner == reader.member.leases.me
    # Its process was killed, and the lease has run out since.
    await rig.ask("update {offsets} set until = clock_timestamp() - interval '1 s'")
    (lag,) = await rig.outbox.lag("g")
    assert (lag.owner, lag.messages) == (None, 1)


async def test_lag_by_slot_names_the_slots_that_are_behind(rig: LogRig) -> None:
    await rig.put("a", 1, 2)
    await rig.put("b", 3)
    await rig.outbox.dispatch(Collector(), "g", batch_size=1)
    lags = await rig.outbox.lag_by_slot("g")
    assert {slot: count for slot, (count, _) in lags.items()} == {slot_of("a"): 1, slot_of("b"): 1}


async def test_lag_sees_a_late_message_behind_the_cursor_of_others(rig: LogRig) -> None:
    late = await rig.writer()
    await late.publish("late", 1)
    await rig.put("k", 2)
    await delivered(rig.outbox, "g")
    await late.commit()
    assert [lag.messages for lag in await rig.outbox.lag("g")] == [1]
    assert await delivered(rig.outbox, "g") == [1]


@pytest.fixture
async def behind(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> LogRig:
    """Far more messages than are looked at, each of a key of its own."""
    monkeypatch.setattr(lag, "MOST", 60)
    monkeypatch.setattr(lag, "LEAST", 20)
    for first in range(0, COUNT, PER_TICK):
        async with AsyncSession(rig.engine) as session, session.begin():
            messages = [OutboxMessage(f"orders/{number}", number) for number in range(first, first + PER_TICK)]
            await rig.outbox.publish(session, *messages)
        await rig.sequence()
    return rig


async def test_whole_log_is_added_up_from_its_ticks(behind: LogRig) -> None:
    await behind.outbox.dispatch(Collector(), "g", batch_size=45)
    (found,) = await behind.outbox.lag("g")
    assert (found.messages, found.is_estimate, found.seconds > 0) == (COUNT - 45, False, True)


async def test_many_ticks_are_not_added_up(behind: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "MOST", 5)
    monkeypatch.setattr(lag, "LEAST", 5)
    await behind.outbox.dispatch(Collector(), "g", batch_size=1)
    (found,) = await behind.outbox.lag("g")
    assert (found.messages, found.is_estimate) == (COUNT - 1, True)


async def test_shares_and_filters_are_estimated(behind: LogRig) -> None:
    for share in range(2):
        await behind.outbox.dispatch(Collector(), "shared", worker_id=share, num_workers=2, batch_size=1)
    await behind.outbox.dispatch(Collector(), "filtered", "orders", batch_size=1)
    shares = await behind.outbox.lag("shared")
    (filtered,) = await behind.outbox.lag("filtered")
    assert {each.is_estimate for each in [*shares, filtered]} == {True}
    assert COUNT // 2 <= sum(each.messages for each in shares) <= 2 * COUNT
    assert (filtered.messages, filtered.slots) == (COUNT - 1, (0, 255))
    slots = (await behind.outbox.lag_by_slot("filtered", "orders")).values()
    assert {each.is_estimate for each in slots} == {True}
    assert COUNT // 2 <= sum(each.messages for each in slots) <= 2 * COUNT


async def test_filter_that_nothing_was_found_for_is_at_most_as_old_as_what_was_not_looked_at(behind: LogRig) -> None:
    await behind.seek("earliest", "g", "nothing")
    (found,) = await behind.outbox.lag("g", "nothing")
    assert (found.messages, found.is_estimate, found.seconds > 0) == (0, True, True)


async def test_little_is_counted_for_every_group_at_its_own_place(behind: LogRig) -> None:
    for number in range(5):
        group, left = f"g{number}", 10 + number
        read = 0
        while more := COUNT - left - read:
            read += (await behind.outbox.dispatch(Collector(), group, "orders", batch_size=min(100, more))).handled
    found = await behind.outbox.lag()
    assert {each.group: (each.messages, each.is_estimate) for each in found} == {
        f"g{number}": (10 + number, False) for number in range(5)
    }


def test_sample_says_how_many_there_are() -> None:
    assert Sample(is_all=True, looked_at=10, beyond=0, is_counted=True).scaled(7) == 7
    assert Sample(is_all=False, looked_at=10, beyond=90, is_counted=False).scaled(5) == 50
    assert Sample(is_all=True, looked_at=0, beyond=0, is_counted=True).scaled(0) == 0


@pytest.mark.slow
async def test_a_thousand_groups_are_answered_for_at_once(rig: LogRig) -> None:
    await rig.put("shop", 1)
    await delivered(rig.outbox, "group 0")
    await rig.ask(
        "insert into {offsets} select (jsonb_populate_record(o, jsonb_build_object('consumer_group', 'group ' || i))).*"
        " from {offsets} o cross join generate_series(1, 999) i where o.consumer_group = 'group 0'"
    )
    assert {lag.group for lag in await rig.outbox.lag()} == {f"group {number}" for number in range(1000)}
    assert len(await rig.outbox.lag("group 77")) == len(await rig.outbox.lag("group 0"))

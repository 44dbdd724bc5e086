"""Retention: what is old and read goes, and nothing that anybody may still need."""

from datetime import timedelta
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.admin import partitions as floor
from faststream_outbox._internal.log.admin import partitions as retention_lock
from faststream_outbox._internal.log.admin import retention
from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox._internal.outcomes.retry import NoRetry
from faststream_outbox._internal.sql.log_admin_rows import DeletedSlice, DeletedTicks
from faststream_outbox.errors import InvalidOption
from faststream_outbox.log import Outbox
from tests.cases import case
from tests.log.admin.conftest import attached
from tests.log.opened import Collector, delivered, refuse
from tests.log.rig import LogRig

NOW = timedelta(0)
AWAY = "update {offsets} set updated_at = now() - interval '40 days'"


async def read_by_the_dead(rig: LogRig, count: int) -> None:
    """So many messages, each in a tick of its own: one group has read the first and gone, another one all of them."""
    await rig.put_apart("k", *range(count))
    await rig.outbox.dispatch(Collector(), "dead", batch_size=1)
    await delivered(rig.outbox, "alive")
    await rig.ask(f"{AWAY} where consumer_group = 'dead'")


async def test_read_and_old_goes(driver_rig: LogRig) -> None:
    await driver_rig.put("k", 1, 2, 3)
    await delivered(driver_rig.outbox, "g")
    await driver_rig.put("k", 4)
    await delivered(driver_rig.outbox, "g")
    cleaned = await driver_rig.outbox.clean(older_than=NOW)
    assert cleaned.messages >= 3
    assert set(await driver_rig.committed()) <= {4}


async def test_young_stays(rig: LogRig) -> None:
    await rig.put("k", 1)
    await delivered(rig.outbox, "g")
    await rig.put("k", 2)
    await delivered(rig.outbox, "g")
    assert (await rig.outbox.clean(older_than=timedelta(hours=1))).messages == 0
    assert await rig.committed() == [1, 2]


async def test_unread_of_the_slowest_group_stays(rig: LogRig) -> None:
    await rig.put_apart("k", *range(6))
    await delivered(rig.outbox, "fast")
    await rig.outbox.dispatch(Collector(), "slow", batch_size=2)
    await rig.outbox.clean(older_than=NOW)
    assert set(await rig.committed()) >= {3, 4, 5, 6}
    assert await delivered(rig.outbox, "slow") == [2, 3, 4, 5]


async def test_group_that_has_never_read_holds_nothing_back(rig: LogRig) -> None:
    await rig.put("k", 1, 2)
    await rig.sequence()
    assert (await rig.outbox.clean(older_than=NOW)).messages == 2
    await rig.put("k", 3)
    await rig.seek("earliest")
    assert (await rig.outbox.clean(older_than=NOW)).messages == 0


@pytest.mark.parametrize("is_open", [False, True], ids=["committed", "open"])
async def test_unread_late_message_stays_though_its_number_is_small(rig: LogRig, is_open: bool) -> None:
    late = await rig.writer()
    await late.publish("late", "late")
    for number in range(3):
        await rig.put("k", number)
        await delivered(rig.outbox, "g")
    if not is_open:
        await late.commit()
        await rig.sequence()
    await rig.outbox.clean(older_than=NOW)
    await late.commit()
    assert await delivered(rig.outbox, "g") == ["late"]


async def test_not_sequenced_stays(rig: LogRig) -> None:
    await rig.put("k", 1)
    await rig.outbox.clean(older_than=NOW)
    assert await delivered(rig.outbox, "g") == [1]


async def test_dead_group_stops_holding_messages_back_and_that_is_told(rig: LogRig) -> None:
    await read_by_the_dead(rig, 4)
    assert (await rig.outbox.clean(older_than=NOW, group_expires_after=timedelta(days=41))).messages <= 1
    assert rig.reported(events.GroupExpired) == []
    assert (await rig.outbox.clean(older_than=NOW)).messages >= 2
    (expired,) = rig.reported(events.GroupExpired)
    assert (expired.group, expired.uri, expired.idle_seconds > 39 * 86400) == ("dead", "", True)


async def test_dead_group_that_comes_back_reads_what_is_left(rig: LogRig) -> None:
    await read_by_the_dead(rig, 4)
    await rig.outbox.clean(older_than=NOW)
    await rig.put("k", "new")
    assert (await delivered(rig.outbox, "dead"))[-1] == "new"


async def test_share_that_nobody_reads_holds_messages_back_while_its_group_lives(rig: LogRig) -> None:
    """One of two static shares is down for long: its group is alive, so nothing of it may go in silence."""
    low = next(f"k{n}" for n in range(1000) if slot_of(f"k{n}") <= 127)
    high = next(f"k{n}" for n in range(1000) if slot_of(f"k{n}") > 127)
    for number in range(3):
        await rig.put(low, f"low{number}")
        await rig.put_apart(high, f"high{number}")
    await rig.outbox.dispatch(Collector(), "g", worker_id=1, num_workers=2, batch_size=1)
    await rig.ask(AWAY)
    await delivered(rig.outbox, "g", worker_id=0, num_workers=2)
    await rig.outbox.clean(older_than=NOW)
    assert rig.reported(events.GroupExpired) or len(await delivered(rig.outbox, "g")) == 2


async def test_deletes_messages_and_ticks_in_slices(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    await rig.put_apart("k", *range(26))
    await delivered(rig.outbox, "g")
    fetch_each, gone = DedicatedConnection.fetch_each, dict[str, list[int]]()
    shapes: dict[str, Any] = {"delete_slice": DeletedSlice, "delete_ticks": DeletedTicks}

    async def counted(connection: DedicatedConnection, steps: Any, **options: Any) -> Any:
        results = await fetch_each(connection, steps, **options)
        name = steps[-1][0].name
        gone.setdefault(name, []).append(shapes[name](*results[-1][0]).gone)
        return results

    monkeypatch.setattr(retention, "SLICE", 10)
    monkeypatch.setattr(DedicatedConnection, "fetch_each", counted)
    await rig.outbox.clean(older_than=NOW)
    # The last tick stays, as its number must not be given again.
    assert gone == {"delete_slice": [10, 10, 6], "delete_ticks": [10, 10, 5]}


async def test_slice_that_takes_too_long_is_tried_with_half_as_many(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.put("k", *range(30))
    await delivered(rig.outbox, "g")
    fetch_each, limits = DedicatedConnection.fetch_each, list[int]()

    async def slowly(connection: DedicatedConnection, steps: Any, **options: Any) -> Any:
        limit = steps[-1][1].get("limit", 0) if steps[-1][0].name == "delete_slice" else 0
        limits.append(limit)
        if limit > 5:
            raise TimeoutError
        return await fetch_each(connection, steps, **options)

    # What takes long is not mistaken for somebody who seeks.
    monkeypatch.setattr(retention_lock, "LONGEST_WAIT", -1.0)
    monkeypatch.setattr(retention, "SLICE", 20)
    monkeypatch.setattr(DedicatedConnection, "fetch_each", slowly)
    assert (await rig.outbox.clean(older_than=NOW)).messages >= 29
    assert [limit for limit in limits if limit][:4] == [20, 10, 5, 5]


async def test_ticks_go_with_their_messages(rig: LogRig) -> None:
    for number in range(5):
        await rig.put("k", number)
        await delivered(rig.outbox, "g")
    cleaned = await rig.outbox.clean(older_than=NOW)
    assert cleaned.ticks >= 4
    assert len(await rig.ask("select tick from {ticks}")) <= 1
    await rig.put("k", "next")
    assert await delivered(rig.outbox, "g") == ["next"]
    assert await delivered(rig.outbox, "new group") == ["next"]


async def parked_first(rig: LogRig) -> Outbox:
    """A log whose first message is parked and whose next five, each in a tick of its own, are read and deleted."""
    outbox = await rig.another(retry_strategy=NoRetry())
    await rig.put("k", "bad")
    await outbox.dispatch(refuse, "g")
    await rig.put_apart("k", *range(5))
    assert await delivered(outbox, "g") == list(range(5))
    await outbox.clean(older_than=NOW)
    return outbox


async def test_message_that_is_set_aside_keeps_its_own_tick_and_no_other(rig: LogRig) -> None:
    await parked_first(rig)
    assert [row["tick"] for row in await rig.ask("select tick from {ticks} order by 1")] == [1, 6]
    assert await rig.committed() == [1]


async def test_replay_over_ticks_that_went_away_reads_each_message_once(rig: LogRig) -> None:
    """Whoever has read the ticks before still knows those that are gone."""
    outbox = await parked_first(rig)
    await rig.put("k", "next")
    await rig.sequence(outbox)
    collector = Collector()
    for _ in range(5):
        await outbox.dispatch(collector, "replay", batch_size=2)
    assert collector.payloads == ["bad", "next"]


async def test_slow_group_that_comes_back_during_a_cleaning_finds_what_it_has_not_read(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for dead when it was found out what must stay."""
    monkeypatch.setattr(retention, "SLICE", 2)
    await read_by_the_dead(rig, 8)
    fetch_each, slices = DedicatedConnection.fetch_each, list[int]()

    async def with_a_return(connection: DedicatedConnection, steps: Any, **options: Any) -> Any:
        rows = await fetch_each(connection, steps, **options)
        if steps[-1][0].name == "delete_slice" and not slices:
            slices.append(1)
            await rig.ask("update {offsets} set updated_at = now() where consumer_group = 'dead'")
        return rows

    monkeypatch.setattr(DedicatedConnection, "fetch_each", with_a_return)
    await rig.outbox.clean(older_than=NOW)
    assert await delivered(rig.outbox, "dead") == list(range(2, 8))


async def test_floor_is_found_over_many_portions_of_ticks(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest unread number may be in the last tick."""
    monkeypatch.setattr(floor, "PORTION", 2)
    late = await rig.writer()
    await late.publish("late", "late")
    await rig.put("k", "read")
    await delivered(rig.outbox, "g")
    await rig.put_apart("k", *range(5))
    await late.commit()
    await rig.sequence()
    await rig.outbox.clean(older_than=NOW)
    assert await delivered(rig.outbox, "g") == [*range(5), "late"]


@pytest.mark.slow
async def test_cleaning_an_empty_log_does_nothing(rig: LogRig) -> None:
    cleaned = await rig.outbox.clean(older_than=NOW)
    assert (cleaned.messages, cleaned.ticks) == (0, 0)


async def test_time_that_is_none_is_refused(rig: LogRig) -> None:
    for wrong in ({"older_than": timedelta(-1)}, {"group_expires_after": timedelta(0)}):
        with case(wrong), pytest.raises(InvalidOption):
            await rig.outbox.clean(**wrong)


async def test_partitions_are_made_ahead_of_the_numbers(parts: LogRig) -> None:
    assert await attached(parts) == ["parted_p0", "parted_p1", "parted_p2"]
    await parts.put("k", *range(15))
    assert await parts.outbox.partitions(10).ensure(ahead=2) == ["parted_p3"]
    assert await parts.outbox.partitions(10).ensure(ahead=2) == []
    assert await delivered(parts.outbox, "g") == list(range(15))


@pytest.mark.slow
async def test_partition_that_is_read_and_old_is_dropped_and_others_stay(parts: LogRig) -> None:
    await parts.put_apart("k", *range(25))
    await delivered(parts.outbox, "g")
    assert (await parts.outbox.clean(older_than=timedelta(hours=1))).partitions == 0
    dropped = await parts.outbox.partitions(10).drop(NOW)
    assert dropped == ["parted_p0", "parted_p1"]
    await parts.put("k", "next")
    assert await delivered(parts.outbox, "g") == ["next"]


async def test_partition_with_an_unread_message_is_not_dropped(parts: LogRig) -> None:
    await parts.put_apart("k", *range(15))
    await parts.outbox.dispatch(Collector(), "g", batch_size=5)
    assert (await parts.outbox.clean(older_than=NOW)).partitions == 0
    assert await delivered(parts.outbox, "g") == list(range(5, 15))


@pytest.mark.slow
async def test_message_that_is_set_aside_keeps_its_own_partition_and_no_other(parts: LogRig) -> None:
    await parts.outbox.partitions(10).ensure(ahead=4)
    await parts.put_apart("k", *range(35))
    await delivered(parts.outbox, "g")
    await parts.ask(
        "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state) "
        "values ('g', '', 15, 15, 0, 'k', 'parked')"
    )
    assert await parts.outbox.partitions(10).drop(NOW) == ["parted_p0", "parted_p2"]


async def test_plain_log_has_no_partitions(rig: LogRig) -> None:
    with pytest.raises(InvalidOption):
        rig.outbox.partitions()

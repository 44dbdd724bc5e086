"""Groups that operators list, pause, resume and delete."""

from datetime import timedelta
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.log.admin import groups
from faststream_outbox._internal.log.sharing.slots import Group
from faststream_outbox._internal.outcomes.retry import NoRetry
from faststream_outbox.errors import GroupInUse, InvalidOption
from faststream_outbox.log import DeferredMessage
from tests.log.opened import Collector, delivered, reading, refuse
from tests.log.rig import LogRig
from tests.waiting import eventually

NOW = timedelta(0)


async def test_list_adds_up_what_each_group_has_not_read_and_what_waits_in_it(driver_rig: LogRig) -> None:
    rig = driver_rig
    outbox = await rig.another(retry_strategy=NoRetry())
    await rig.put("k", 1)
    await outbox.dispatch(refuse, "billing")
    await rig.put("k", 2, 3)
    for share in range(2):
        await outbox.dispatch(Collector(), "search", worker_id=share, num_workers=2, batch_size=1)
    billing, search = await outbox.groups.list()
    assert (billing.group, billing.parked, billing.deferred, billing.retrying) == ("billing", 1, 0, 0)
    assert (billing.messages, billing.seconds > 0, billing.is_estimate, billing.has_more) == (2, True, False, False)
    assert (search.group, search.messages, search.members, search.slots) == ("search", 2, 0, 0)
    assert [each.group for each in await outbox.groups.list("search")] == ["search"]


async def test_living_readers_are_counted_also_those_of_fixed_shares(rig: LogRig) -> None:
    await rig.put("k", 1)
    half = {"process_id": 0, "num_processes": 2}
    async with reading(rig.outbox, Collector(), "g"), reading(await rig.another(), Collector(), "fixed", **half):

        async def is_read() -> bool:
            found = {each.group: (each.members, each.slots) for each in await rig.outbox.groups.list()}
            return found == {"g": (1, 256), "fixed": (1, 128)}

        await eventually(is_read)


async def test_counting_of_what_waits_is_limited(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_COUNTED", 2)
    await defer_some(rig, 5)
    (found,) = await rig.outbox.groups.list()
    assert (found.parked, found.has_more) == (2, True)


async def defer_some(rig: LogRig, count: int) -> None:
    """A group that has read one message and parked so many."""
    await rig.put("k", 1)
    await delivered(rig.outbox, "g")
    await rig.ask(
        "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state) "
        f"select 'g', '', n, 1, 1, 'k', 'parked' from generate_series(1, {count}) n"
    )


async def test_paused_group_is_read_by_nobody_and_goes_on_where_it_stood(rig: LogRig) -> None:
    other = await rig.another()
    await rig.put("k", 1)
    seen = Collector()
    async with reading(other, seen, "g"):
        await eventually(lambda: seen.payloads == [1])
        assert await rig.outbox.groups.pause("g")
        await eventually(lambda: rig.reported(events.SlotsHeld)[-1].slots == 0)
        await rig.put_apart("k", 2)
        assert await delivered(rig.outbox, "other") == [1, 2]
        assert (seen.payloads, other.client.is_healthy) == ([1], True)
        assert not await rig.outbox.dispatch(Collector(), "g")
        assert await rig.outbox.groups.resume("g")
        await eventually(lambda: seen.payloads == [1, 2])


@pytest.mark.slow
async def test_pause_reaches_a_fixed_share_that_hears_nothing(rig: LogRig) -> None:
    other = await rig.another(listen=False, lease_ttl_seconds=1.0)
    await rig.put("k", 1)
    shares: list[dict[str, Any]] = [{"process_id": number, "num_processes": 2} for number in range(2)]
    async with reading(other, Collector(), "g", **shares[0]), reading(other, Collector(), "g", **shares[1]):
        await eventually(lambda: sum(event.slots for event in rig.reported(events.SlotsHeld)[-2:]) == 256)
        await rig.outbox.groups.pause("g")
        await eventually(lambda: [event.slots for event in rig.reported(events.SlotsHeld)[-2:]] == [0, 0])


async def test_pause_says_whether_it_changed_anything(rig: LogRig) -> None:
    await rig.put("k", 1)
    await delivered(rig.outbox, "g")
    admin = rig.outbox.groups
    assert [await admin.pause("g"), await admin.pause("g"), await admin.paused()] == [True, False, [Group("g", "")]]
    assert (await admin.list("g"))[0].paused_since is not None
    assert [await admin.resume("g"), await admin.resume("g"), await admin.paused()] == [True, False, []]


async def test_pause_outlives_cut_and_joined_spans(rig: LogRig) -> None:
    await rig.put("k", 1)
    for share in range(4):
        await rig.outbox.dispatch(Collector(), "g", worker_id=share, num_workers=4)
    await rig.outbox.groups.pause("g")
    reader = await rig.reader()
    await reader.member.leases.rebalance()
    assert len(await rig.spans()) == 1
    assert await rig.outbox.groups.paused() == [Group("g", "")]


async def test_paused_group_holds_messages_back_however_long(rig: LogRig) -> None:
    await rig.put_apart("k", *range(3))
    await rig.outbox.dispatch(Collector(), "g", batch_size=1)
    await rig.outbox.groups.pause("g")
    await rig.ask("update {offsets} set updated_at = now() - interval '40 days'")
    assert (await rig.outbox.clean(older_than=NOW)).messages <= 1
    assert rig.reported(events.GroupExpired) == []
    await rig.outbox.groups.resume("g")
    await rig.outbox.clean(older_than=NOW)
    assert await delivered(rig.outbox, "g") == [1, 2]


async def test_group_without_a_place_cannot_be_paused(rig: LogRig) -> None:
    reader = await rig.reader("young")
    await reader.enter()
    with pytest.raises(InvalidOption, match="no place"):
        await rig.outbox.groups.pause("young")


async def test_deleted_group_is_gone_with_all_that_it_had_set_aside(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "SLICE", 2)
    await defer_some(rig, 5)
    assert await rig.outbox.groups.delete("g") == 5
    assert (await rig.spans(), await rig.deferrals(), await rig.outbox.groups.list()) == ([], [], [])
    assert await delivered(rig.outbox, "g") == [1]


async def slots(rig: LogRig) -> int:
    """How many the group's readers hold."""
    return (await rig.outbox.groups.list("g"))[0].slots


async def test_group_that_is_read_is_not_deleted_unless_forced(rig: LogRig) -> None:
    await defer_some(rig, 1)
    seen = Collector()
    async with reading(await rig.another(), seen, "g"):
        await eventually(lambda: slots(rig))
        with pytest.raises(GroupInUse, match="force"):
            await rig.outbox.groups.delete("g")
        assert len(await rig.deferrals()) == 1
        assert await rig.outbox.groups.delete("g", force=True) == 1
        await eventually(lambda: seen.payloads == [1])


async def test_share_of_a_process_that_is_fixed_counts_as_read(rig: LogRig) -> None:
    await rig.put("k", 1)
    reader = await rig.reader(fixed=(0, 255))
    await reader.arrange()
    with pytest.raises(GroupInUse):
        await rig.outbox.groups.delete("g")
    await reader.leave()
    await rig.outbox.groups.delete("g")


GROUPS = [("a", ""), ("a", "k"), ("b", "")]


async def pages(rig: LogRig, group: str | None = None, **filters: Any) -> list[tuple[str, str, int]]:
    """Everything that a listing has, two entries a page."""
    found: list[DeferredMessage] = []
    while page := await rig.outbox.parked.list(group, limit=2, after=found[-1] if found else None, **filters):
        found += page
    return [(each.group, each.uri, each.position) for each in found]


async def test_pages_of_what_is_set_aside_have_every_entry_once(driver_rig: LogRig) -> None:
    rig = driver_rig
    for group, uri in GROUPS:
        await rig.seek("earliest", group, uri)
        await rig.ask(
            "insert into {deferred} (consumer_group, uri, position, tick, slot, key, state, error_type) "
            "select :group, :uri, n, 9 - n, 1, 'k' || n % 2, case when n < 4 then 'parked' else 'deferred' end, "
            "case when n = 2 then 'ValueError' end from generate_series(1, 5) n",
            group=group, uri=uri,
        )  # fmt: skip
    parked = [(group, uri, n) for group, uri in GROUPS for n in (1, 2, 3)]
    assert await pages(rig) == parked
    assert await pages(rig, "a") == parked[:6]
    assert await pages(rig, "a", uri="k") == parked[3:6]
    assert await pages(rig, uri="k") == parked[3:6]
    assert await pages(rig, "b", state=None, key="k1") == [("b", "", n) for n in (1, 3, 5)]
    assert await pages(rig, error_type="ValueError") == [each for each in parked if each[2] == 2]
    with pytest.raises(InvalidOption, match="state"):
        await rig.outbox.parked.list(state="asleep")

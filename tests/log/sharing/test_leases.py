"""Groups: leases with epochs, spans that stay a partition of the slots, takeover, shares that change."""

import asyncio
import random
from typing import Any
from uuid import uuid4

import pytest

from faststream_outbox._internal.log.executor import BatchRun
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox._internal.sql.statements import statements
from tests.log.opened import Collector, delivered, drain, reading, refuse
from tests.log.rig import LogRig, covers, fail, in_hand, succeed
from tests.waiting import eventually

KEYS = [f"kafka://orders/order-{number}" for number in range(26)]


async def take_over(rig: LogRig, group: str = "g") -> Reader:
    """Another member that has everything, because the leases of whoever had it are over."""
    await rig.ask("update {offsets} set until = now() - interval '1 s' where consumer_group = :group", group=group)
    await rig.ask("delete from {members} where consumer_group = :group", group=group)
    successor = await rig.reader(group, outbox=await rig.another())
    await successor.join()
    return successor


@pytest.fixture
async def zombie(rig: LogRig) -> Reader:
    """A member with a batch in flight, whose lease was taken over."""
    await rig.put("k", 1, 2)
    await rig.sequence()
    reader = await rig.reader()
    await reader.join()
    return reader


@pytest.mark.parametrize("outcome", [succeed, fail])
async def test_zombie_writes_nothing_of_a_batch(rig: LogRig, zombie: Reader, outcome: Any) -> None:
    batch = await in_hand(zombie)
    await take_over(rig)
    await batch.run(outcome)
    assert await rig.deferrals() == []
    assert {(span["tick"], span["position"]) for span in await rig.spans()} == {(0, 0)}


async def test_zombie_settles_nothing_that_was_set_aside(rig: LogRig, zombie: Reader) -> None:
    await (await in_hand(zombie)).run(fail)
    await rig.ask("update {deferred} set due = now()")
    await zombie.arrange()
    waiting = await zombie.next_batch()
    assert waiting is not None
    assert waiting.is_deferred
    await take_over(rig)
    await BatchRun(zombie.member, zombie.settler, waiting).run(succeed)
    assert [row["state"] for row in await rig.deferrals()] == ["retry", "deferred"]


async def test_zombie_notices_when_it_renews(rig: LogRig, zombie: Reader) -> None:
    await take_over(rig)
    await rig.renew(zombie)
    assert not zombie.member.leases.spans


async def test_zombie_neither_releases_nor_joins_nor_cuts(rig: LogRig, zombie: Reader) -> None:
    await take_over(rig)
    before = await rig.spans()
    await zombie.member.leases.isolate(17)
    await zombie.member.leases._join()
    await zombie.member.leases.release()
    assert await rig.spans() == before


async def test_member_that_was_given_up_for_dead_reads_nothing_until_it_has_a_share(
    rig: LogRig, zombie: Reader
) -> None:
    """Looking for messages must not bring back slots that a renewal has found lost."""
    await rig.put("x/1", *range(5))
    await rig.sequence()
    fetch = rig.outbox.client.connection.fetch
    seen: list[str] = []

    async def losing(statement: Any, values: Any) -> Any:
        rows = await fetch(statement, values)
        seen.append(statement.name)
        if statement.name == "fetch":
            zombie.member.leases.lose(list(zombie.member.leases.spans.values()))
        return rows

    zombie.member.group = type(zombie.member.group)("g", "nothing of this kind")
    rig.outbox.client.connection.fetch = losing  # type: ignore[method-assign]
    try:
        await zombie.next_batch(is_idle=True)
    finally:
        rig.outbox.client.connection.fetch = fetch  # type: ignore[method-assign]
    assert "fetch" in seen
    assert not zombie.member.leases.spans


@pytest.mark.parametrize("members", [3, 16])
async def test_members_share_every_slot_once(rig: LogRig, members: int) -> None:
    readers = [await rig.reader(outbox=await rig.another()) for _ in range(members)]
    for _ in range(3):
        for reader in readers:
            await reader.join()
    assert covers(await rig.spans())
    sizes = [reader.member.leases.size for reader in readers]
    assert sum(sizes) == 256
    assert max(sizes) <= -(-256 // members)


async def test_members_that_join_at_once_share_every_slot_once(rig: LogRig) -> None:
    readers = [await rig.reader(outbox=await rig.another()) for _ in range(6)]
    # Who comes while another writes leaves what that one has locked to a later round.
    for _ in range(20):
        await asyncio.gather(*(reader.join() for reader in readers))
        assert covers(await rig.spans())
        if (held := sum(reader.member.leases.size for reader in readers)) == 256:
            break
    assert held == 256


async def test_slots_of_a_dead_member_are_all_taken_however_many_are_left(rig: LogRig) -> None:
    """Its leases may outlive its membership, as it wrote more often than it beat."""
    readers = [await rig.reader(outbox=rig.outbox) for _ in range(32)]
    for _ in range(2):
        for reader in readers:
            await reader.join()
    assert {reader.member.leases.size for reader in readers} == {8}
    dead = readers.pop()
    await rig.ask("delete from {members} where member = :me", me=dead.member.leases.me)
    for reader in readers:
        await rig.renew(reader)
    for reader in readers:
        if reader.member.is_unsettled:
            await reader.join()
    await rig.ask("update {offsets} set until = now() - interval '1 s' where owner = :me", me=dead.member.leases.me)
    for _ in range(3):
        for reader in readers:
            await rig.renew(reader)
            if reader.member.is_unsettled:
                await reader.join()
    assert sum(reader.member.leases.size for reader in readers) == 256


@pytest.mark.slow
async def test_takeover_after_a_crash_does_not_wait_for_a_poll(rig: LogRig) -> None:
    ttl = 1.0
    dead = await rig.reader(outbox=await rig.another(), lease_ttl_seconds=ttl)
    await dead.join()
    await rig.put("k", 1)
    collector = Collector()
    alive = await rig.another(lease_ttl_seconds=ttl)
    async with reading(alive, collector, "g", poll_interval=3600.0):
        await eventually(lambda: collector.payloads == [1])


async def test_slots_of_a_member_that_leaves_are_free_at_once(rig: LogRig) -> None:
    leaving = await rig.reader(outbox=await rig.another(), lease_ttl_seconds=3600)
    await leaving.join()
    await leaving.leave()
    other = await rig.reader(outbox=await rig.another())
    await other.join()
    assert other.member.leases.size == 256
    assert await rig.ask("select count(*) as n from {members}") == [{"n": 1}]


async def test_graceful_leave_wakes_those_who_stay(rig: LogRig) -> None:
    async def held() -> list[int]:
        rows = await rig.ask("select sum(hi - lo + 1)::int as n from {offsets} where owner is not null group by owner")
        return [row["n"] for row in rows]

    async def is_held(*slots: int) -> bool:
        return await held() == [*slots]

    first, second = await rig.another(lease_ttl_seconds=60), await rig.another(lease_ttl_seconds=60)
    async with reading(first, Collector(), "g", poll_interval=60.0):
        async with reading(second, Collector(), "g", poll_interval=60.0):
            await eventually(lambda: is_held(128, 128))
        await eventually(lambda: is_held(256))


@pytest.mark.parametrize("seed", range(3))
async def test_shares_that_change_lose_nothing_and_reorder_nothing(rig: LogRig, seed: int) -> None:
    chance, collector, published = random.Random(seed), Collector(), 0
    for _ in range(25):
        more = chance.choice([0, 0, 1])
        await rig.put_all(KEYS, *range(published, published + more))
        published += more
        count = chance.choice([1, 2, 3, 4, 7, 16])
        share = {"worker_id": chance.randrange(count), "num_workers": count, "batch_size": chance.randint(1, 20)}
        await rig.outbox.dispatch(collector, "g", **share)
    assert covers(await rig.spans())
    await drain(rig.outbox, collector, "g")
    assert {key: collector.of(key) for key in KEYS} == {key: list(range(published)) for key in KEYS}


async def test_fixed_shares_become_members_and_fixed_shares_again(rig: LogRig) -> None:
    collector = Collector()
    await rig.put_all(KEYS, 0, 1)
    for worker in (0, 1):
        await rig.outbox.dispatch(collector, "g", worker_id=worker, num_workers=3, batch_size=5)
    async with reading(rig.outbox, collector, "g", concurrency=2, poll_interval=0.2):
        await eventually(lambda: len(collector.messages) >= 2 * len(KEYS))
    await rig.put_all(KEYS, 2, 3)
    for worker in range(5):
        await drain(rig.outbox, collector, "g", worker_id=worker, num_workers=5)
    assert {key: collector.of(key) for key in KEYS} == {key: [0, 1, 2, 3] for key in KEYS}


@pytest.mark.slow
async def test_static_shares_deliver_every_message_once(driver_rig: LogRig) -> None:
    keys = [f"k{number}" for number in range(300)]
    await driver_rig.put_all(keys, 1)
    collector = Collector()
    for share in range(7):
        await drain(driver_rig.outbox, collector, "g", worker_id=share, num_workers=7)
    assert sorted(message.uri for message in collector.messages) == sorted(keys)
    assert not await driver_rig.outbox.dispatch(Collector(), "g")


async def test_share_that_somebody_else_holds_is_left_alone(rig: LogRig) -> None:
    other = await rig.reader(outbox=await rig.another(), fixed=(0, 127))
    await other.arrange()
    low = next(f"k{n}" for n in range(1000) if slot_of(f"k{n}") <= 127)
    high = next(f"k{n}" for n in range(1000) if slot_of(f"k{n}") > 127)
    await rig.put(low, "low")
    await rig.put(high, "high")
    assert await delivered(rig.outbox, "g") == ["high"]


async def test_cursor_advances_over_what_the_filter_does_not_match(rig: LogRig) -> None:
    await rig.put("other", *range(50))
    assert await delivered(rig.outbox, "g", "mine") == []
    assert {span["position"] for span in await rig.spans("g", "mine")} == {50}


async def test_messages_behind_a_long_unmatched_stretch_are_found(rig: LogRig) -> None:
    for _ in range(5):
        await rig.put("other", *range(1000))
    await rig.put("mine/1", "found")
    assert await delivered(rig.outbox, "g", "mine", batch_size=10) == ["found"]


async def test_group_that_starts_at_the_end_reads_only_what_comes(rig: LogRig) -> None:
    outbox = await rig.another(start="latest")
    await rig.put("k", "old")
    assert not await outbox.dispatch(Collector(), "g")
    await rig.put("k", "new")
    assert await delivered(outbox, "g") == ["new"]


async def test_key_blocked_by_one_member_is_blocked_for_its_successor(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=3600))
    await rig.put("k", 1)
    await outbox.dispatch(refuse, "g")
    await rig.put("k", 2)
    assert await delivered(await rig.another(), "g") == []
    assert [row["state"] for row in await rig.deferrals()] == ["retry", "deferred"]


async def test_sign_of_life_waits_for_no_other_member(rig: LogRig) -> None:
    """Two that took each other for dead, and each began with its own row, would wait for each other for ever."""
    sql = statements("group", rig.outbox.client.names)["heartbeat"]
    first, second = uuid4(), uuid4()
    values = {"group": "g", "uri": "", "ttl": 15.0}
    for member in (first, second):
        await rig.ask(
            "insert into {members} (consumer_group, uri, member, until) values ('g', '', :me, now() - interval '1 h')",
            me=member,
        )
    late = await rig.writer()
    await late.connection.exec_driver_sql("select 1 from outbox_members where member = $1 for update", (first,))
    async with asyncio.timeout(20):
        await rig.outbox.client.connection.fetch(sql, {**values, "me": second})
    await late.rollback()
    await rig.outbox.client.connection.fetch(sql, {**values, "me": second})
    assert [row["member"] for row in await rig.ask("select member from {members}")] == [second]

"""Renewing: a few statements for all members of a process, and only those wake that have something to do."""

import re
from collections.abc import Sequence
from importlib import resources

import pytest

from faststream_outbox._internal import sql
from faststream_outbox._internal.log.reader import Reader
from tests.log.asked import recorded
from tests.log.rig import LogRig, fail, gathered, in_hand

SHARED = ["renew_each", "beat_each", "spans_of_groups", "census"]


async def settled(readers: Sequence[Reader]) -> None:
    """Let members share their slots until nobody has anything to do."""
    for _ in range(4):
        for reader in readers:
            await reader.join()
    for reader in readers:
        reader.member.arranged()


async def test_members_of_many_groups_are_renewed_together(rig: LogRig) -> None:
    readers = [await rig.reader(f"g{number % 4}", f"u{number % 4}") for number in range(12)]
    await settled(readers)
    await rig.ask("update {offsets} set until = now()")
    await rig.ask("update {members} set until = now()")
    with recorded(rig.outbox) as asked:
        await rig.renew(*readers)
    assert [each.statement.name for each in asked] == SHARED
    assert await rig.ask("select 1 from {offsets} where until < now() + interval '5 s'") == []
    assert await rig.ask("select 1 from {members} where until < now() + interval '5 s'") == []
    assert [reader.member.group for reader in readers if reader.member.is_unsettled] == []


async def test_only_members_of_the_group_that_has_changed_are_to_arrange(rig: LogRig) -> None:
    readers = [await rig.reader(name) for name in ("a", "a", "b", "b")]
    await settled(readers)
    newcomer = await rig.reader("b", outbox=await rig.another())
    await newcomer.enter()
    await rig.renew(*readers)
    assert [reader.member.is_unsettled for reader in readers] == [False, False, True, True]


async def test_dead_members_are_forgotten_and_what_they_left_is_taken(rig: LogRig) -> None:
    alive, dead = await rig.reader(), await rig.reader(outbox=await rig.another())
    await settled([alive, dead])
    assert alive.member.leases.size == 128
    await rig.ask("update {offsets} set until = now() - interval '1 s' where owner = :me", me=dead.member.leases.me)
    await rig.ask("update {members} set until = now() - interval '1 s' where member = :me", me=dead.member.leases.me)
    await rig.renew(alive)
    assert alive.member.is_unsettled
    assert [row["member"] for row in await rig.ask("select member from {members}")] == [alive.member.leases.me]
    await alive.join()
    assert alive.member.leases.size == 256


async def failed(rig: LogRig) -> Reader:
    """A reader that has set one message aside."""
    await rig.put_apart("k", 1)
    reader = await rig.reader()
    await reader.join()
    await (await in_hand(reader)).run(fail)
    return reader


@pytest.mark.parametrize("change", ["update {deferred} set due = now(), updated_at = now()", "delete from {deferred}"])
async def test_what_an_operator_changed_is_noticed_although_nobody_called(rig: LogRig, change: str) -> None:
    reader = await failed(rig)
    for _ in range(2):
        await rig.renew(reader)
        await reader.arrange()
    await rig.renew(reader)
    assert not reader.member.is_unsettled
    await rig.ask(change)
    await rig.renew(reader)
    assert reader.member.is_unsettled


async def test_share_that_is_fixed_and_complete_is_woken_only_where_its_group_is_paused(rig: LogRig) -> None:
    await rig.put("k", 1)
    reader = await rig.reader(fixed=(0, 255))
    await reader.join()
    reader.member.arranged()
    await rig.renew(reader)
    assert not reader.member.is_unsettled
    await rig.outbox.groups.pause("g")
    await rig.renew(reader)
    assert reader.member.is_unsettled


async def test_what_was_set_aside_before_the_first_look_is_noticed(rig: LogRig) -> None:
    reader = await failed(rig)
    await rig.ask("delete from {deferred}")
    await rig.renew(reader)
    assert reader.member.is_unsettled


OF_TICKS = frozenset(
    re.findall(r"^-- name: (\w+)$", resources.files(sql).joinpath("tick.sql").read_text(), re.MULTILINE)
)


async def statements_to_start(rig: LogRig, *workers: Sequence[Reader]) -> int:
    """Statements until members of workers, started one after another, hold their slots; those of ticks do not count."""
    client = rig.outbox.client
    running: list[Reader] = []
    with recorded(rig.outbox) as asked:
        for readers in workers:
            await client.enter([reader.member for reader in readers])
            for reader in readers:
                await client.attach(reader.member)
                running.append(reader)
            while late := [reader for reader in running if reader.member.is_unsettled]:
                await gathered(*(reader.join() for reader in late))
        for reader in running:
            await client.detach(reader.member)
    names = [each.statement.name for each in asked]
    # How far the ticker gets meanwhile, which begins with questions to the server, is a matter of time.
    return len([name for name in names if name not in OF_TICKS])


async def test_starting_twice_as_many_members_takes_twice_as_many_statements(rig: LogRig) -> None:
    rig.outbox = await rig.another(listen=False)
    few, many = [
        await statements_to_start(rig, *[[await rig.reader(f"{count} {number}")] for number in range(count)])
        for count in (5, 10)
    ]
    assert many <= 2 * few


async def test_members_of_one_group_start_without_getting_into_each_others_way(rig: LogRig) -> None:
    rig.outbox = await rig.another(listen=False)
    assert await statements_to_start(rig, [await rig.reader() for _ in range(16)]) <= 16 * 8

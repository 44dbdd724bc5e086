"""After an owner has died its messages run with a note of each; innocents are not parked, and others pay nothing."""

import asyncio
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.log.reader import Reader
from faststream_outbox._internal.log.settler import Settler
from faststream_outbox._internal.log.sharing.leases import CrashGuard
from faststream_outbox._internal.log.sharing.slots import slot_of
from faststream_outbox._internal.outcomes.retry import ConstantRetry
from faststream_outbox.errors import InvalidOption
from faststream_outbox.log import OutboxMessage
from tests.log.asked import recorded
from tests.log.opened import Collector, delivered, drain, reading, refuse
from tests.log.rig import LogRig
from tests.waiting import eventually

LIMIT = 3
ALL = (0, 255)


async def die(rig: LogRig) -> None:
    """Leave the group as a process does that was killed, and whose lease has ended since."""
    await rig.ask("update {offsets} set owner = gen_random_uuid(), until = clock_timestamp() - interval '1 second'")


async def joined(rig: LogRig, fixed: tuple[int, int] = ALL, **options: Any) -> Reader:
    reader = await rig.reader(fixed=fixed, **options)
    await reader.join()
    return reader


async def test_nothing_is_noted_while_owners_give_back_what_they_hold(rig: LogRig) -> None:
    with recorded(rig.outbox) as asked:
        for number in range(3):
            await rig.put("k", number)
            await drain(rig.outbox, Collector(), "g")
    names = {each.statement.name for each in asked}
    assert ("note" in names, "move" in names) == (False, True)


async def test_messages_of_a_dead_owner_run_one_by_one_and_are_written_each(rig: LogRig) -> None:
    await rig.put("k", 1, 2, 3)
    await joined(rig)
    await die(rig)
    seen: list[tuple[int, int]] = []

    async def handle(message: OutboxMessage) -> None:
        (span,) = await rig.spans()
        seen.append((span["position"], span["suspect"]))

    await drain(rig.outbox, handle, "g")
    assert seen == [(0, 1), (1, 2), (2, 3)]
    (span,) = await rig.spans()
    assert (span["suspect"], span["suspect_epoch"], span["crashes"]) == (None, None, 0)


async def test_fleet_that_is_killed_again_and_again_parks_nothing(rig: LogRig) -> None:
    """Nobody noted anything before it died: no message is to blame."""
    outbox = await rig.another(crash_limit=LIMIT)
    await rig.put("k", 1, 2)
    for _ in range(10 * LIMIT):
        await joined(rig)
        await die(rig)
    assert await delivered(outbox, "g") == [1, 2]


async def test_death_counts_against_the_message_that_was_noted_and_progress_forgets_it(rig: LogRig) -> None:
    outbox = await rig.another(crash_limit=LIMIT)
    await rig.put("k", 1, 2, 3)
    for death in range(LIMIT):
        reader = await joined(rig, crash_limit=LIMIT)
        assert await reader.settler.note(0, 1) == death
        await die(rig)
    assert await delivered(outbox, "g") == [2, 3]
    (deferral,) = await rig.deferrals()
    assert (deferral["position"], deferral["state"]) == (1, "parked")
    assert deferral["error_message"].startswith(f"crash_loop: {LIMIT} processes")
    assert [event.reason for event in rig.reported(events.Died)] == ["crash_loop"]


async def test_another_suspect_begins_at_nothing(rig: LogRig) -> None:
    for position in (1, 2, 1, 2, 1):
        reader = await joined(rig)
        assert await reader.settler.note(0, position) == 0
        await die(rig)


async def test_messages_that_were_noted_at_a_death_do_not_run_beside_each_other(rig: LogRig) -> None:
    """Each of two members had one in flight: while one of them may end the process, the other is not noted again."""
    outbox = await rig.another()
    low, high = (next(key for key in "abcdefgh" if (slot_of(key) > 127) is is_high) for is_high in (False, True))
    await rig.put(low, 1)
    await rig.put_apart(high, 2)
    for share in ((0, 127), (128, 255)):
        reader = await joined(rig, share)
        batch = await reader.next_batch(is_idle=True)
        for delivery in batch.deliveries if batch else ():
            await reader.settler.note(delivery.slot, delivery.position)
    suspects = [span["suspect"] for span in await rig.spans()]
    assert sorted(suspects) == [1, 2]
    await die(rig)
    inside: set[int] = set()
    most = 0

    async def handle(message: OutboxMessage) -> None:
        nonlocal most
        inside.add(message.payload)
        most = max(most, len(inside))
        await asyncio.sleep(0.05)
        inside.remove(message.payload)
        collector.messages.append(message)

    collector = Collector()
    async with reading(outbox, handle, "g", concurrency=2, process_id=0, num_processes=1, poll_interval=0.1):
        await eventually(lambda: sorted(collector.payloads) == [1, 2], 20)
    assert most == 1


async def test_message_that_waited_is_forgotten_as_a_suspect_once_it_has_run(rig: LogRig) -> None:
    outbox = await rig.another(retry_strategy=ConstantRetry(delay_seconds=3600))
    await rig.put("k", 1)
    await outbox.dispatch(refuse, "g")
    await rig.ask("update {deferred} set due = now()")
    await die(rig)
    await outbox.dispatch(refuse, "g")
    assert [(row["state"], row["attempts"]) for row in await rig.deferrals()] == [("retry", 2)]
    assert [row["suspect"] for row in await rig.spans()] == [None]


async def test_iterator_parks_a_message_that_owners_died_with(rig: LogRig) -> None:
    outbox = await rig.another(crash_limit=1)
    await rig.put("k", 1, 2)
    reader = await joined(rig)
    await reader.settler.note(0, 1)
    await die(rig)
    async for message in outbox.messages("g"):
        assert message.payload == 2
        break
    assert [(row["position"], row["state"]) for row in await rig.deferrals()] == [(1, "parked")]


async def test_crash_limit_is_a_count(rig: LogRig) -> None:
    with pytest.raises(InvalidOption):
        await rig.another(crash_limit=0)


def test_care_ends_after_as_many_messages_as_the_dead_may_have_had() -> None:
    crash_guard = CrashGuard()
    crash_guard.need(0, 9, 2)
    crash_guard.had(3, 1)
    assert 9 in crash_guard
    crash_guard.had(4, 2)
    assert 9 not in crash_guard


@pytest.mark.parametrize("transactional", [False, True])
async def test_message_that_was_noted_when_its_member_was_stopped_comes_again(
    transactional: bool, rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note takes its time: the order to stop may come meanwhile, before the message has run."""
    await rig.put("a", 1, 2)
    await drain(rig.outbox, Collector(), "g")
    await rig.put("a", 3, 4)
    await die(rig)
    stop, note = asyncio.Event(), Settler.note

    async def noted(settler: Settler, slot: int, position: int | None) -> int | None:
        crashes = await note(settler, slot, position)
        settler.member.stop()
        stop.set()
        return crashes

    collector = Collector()
    monkeypatch.setattr(Settler, "note", noted)
    await asyncio.wait_for(rig.outbox.run(collector, "g", stop_event=stop, transactional=transactional), 30)
    monkeypatch.undo()
    await drain(rig.outbox, collector, "g")
    assert collector.of("a") == [3, 4]

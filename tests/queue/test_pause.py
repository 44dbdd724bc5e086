"""A paused queue is claimed by nobody until it is resumed."""

import asyncio

import pytest

from faststream_outbox.events import table as told
from faststream_outbox.queue import DONE, Claim, Done, pause, paused, resume
from tests.queue.rig import POLLING, QUIET_SECONDS, Rig


async def done(claim: Claim) -> Done:
    return DONE


async def test_says_whether_it_changed_anything(driver_rig: Rig) -> None:
    client = driver_rig.client
    answers = [await pause(client, "orders"), await pause(client, "orders")]
    answers += [await resume(client, "orders"), await resume(client, "orders")]
    assert answers == [True, False, True, False]


async def test_the_paused_queues_are_known_to_every_client(driver_rig: Rig) -> None:
    await pause(driver_rig.client, "orders")
    await pause(driver_rig.client, "mails")
    assert await paused(driver_rig.another_client()) == ["mails", "orders"]


@pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])
async def test_a_pause_is_heeded_by_every_client(driver_rig: Rig, key: str | None) -> None:
    rig = driver_rig
    await pause(rig.client, "orders")
    for client in (rig.client, rig.another_client()):
        await rig.work(done, ["orders", "mails"], client=client, **POLLING)
    await rig.put("a", key=key)
    for count in range(1, 4):
        await rig.put("b", queue="mails", key=key)
        await rig.witness.wait(told.Handled, count=count)
    assert [event.queue for event in rig.witness.of(told.Started)] == ["mails"] * 3


@pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])
async def test_resuming_wakes_the_sleepers_of_every_client(driver_rig: Rig, key: str | None) -> None:
    rig = driver_rig
    other = rig.another_client()
    await rig.work(done, client=other)
    await rig.witness.wait(told.ListenerReady)
    await pause(rig.client, "orders")
    await rig.put("a", "b", key=key)
    await asyncio.sleep(QUIET_SECONDS)
    assert rig.witness.of(told.Started) == []
    await resume(rig.client, "orders")
    await rig.witness.wait(told.Handled, count=2, queue="orders")


async def test_what_is_claimed_already_runs_on(rig: Rig) -> None:
    async def handle(claim: Claim) -> Done:
        await pause(rig.client, "orders")
        return DONE

    await rig.work(handle)
    await rig.put("a")
    await rig.witness.wait(told.Handled)


async def test_a_pause_is_no_message(rig: Rig) -> None:
    await pause(rig.client, "orders")
    await rig.work(done, "mails")
    await rig.put("a", queue="mails")
    await rig.witness.wait(told.Handled)
    assert await paused(rig.client) == ["orders"]


async def test_a_paused_queue_takes_messages(rig: Rig) -> None:
    await pause(rig.client, "orders")
    await rig.put("a", timer_id="t")
    await resume(rig.client, "orders")
    assert (await rig.row())["payload"] == b"a"

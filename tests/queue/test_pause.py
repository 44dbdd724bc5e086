"""A paused queue is claimed by nobody until it is resumed."""

import asyncio

import pytest

from faststream_outbox import events
from faststream_outbox.errors import UnknownName
from faststream_outbox.queue import DONE, Claim, Dead, Done, pause, paused, resume
from tests.queue.rig import POLLING, QUIET_SECONDS, Rig, Seen, done

keyless_and_keyed = pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])


async def test_says_whether_it_changed_anything(driver_rig: Rig) -> None:
    client = driver_rig.client
    answers = [await pause(client, "orders", create=True), await pause(client, "orders", create=True)]
    answers += [await resume(client, "orders"), await resume(client, "orders")]
    assert answers == [True, False, True, False]


async def test_the_paused_queues_are_known_to_every_client(driver_rig: Rig) -> None:
    await pause(driver_rig.client, "orders", create=True)
    await pause(driver_rig.client, "mails", create=True)
    other = driver_rig.another_client()
    assert await paused(other) == ["mails", "orders"]
    assert not await pause(other, "orders")
    assert await resume(other, "orders")


@keyless_and_keyed
async def test_a_pause_is_heeded_by_every_client(driver_rig: Rig, key: str | None) -> None:
    rig = driver_rig
    await pause(rig.client, "orders", create=True)
    for client in (rig.client, rig.another_client()):
        await rig.work(done, ["orders", "mails"], client=client, **POLLING)
    await rig.put("a", key=key)
    for count in range(1, 4):
        await rig.put("b", queue="mails", key=key)
        await rig.witness.wait(events.Handled, count=count)
    assert [event.queue for event in rig.witness.of(events.Started)] == ["mails"] * 3


@pytest.mark.slow
@keyless_and_keyed
async def test_resuming_wakes_the_sleepers_of_every_client(rig: Rig, key: str | None) -> None:
    await rig.work(done, client=rig.another_client())
    await rig.witness.wait(events.ListenerReady)
    await pause(rig.client, "orders", create=True)
    await rig.put("a", "b", key=key)
    await asyncio.sleep(QUIET_SECONDS)
    assert rig.witness.of(events.Started) == []
    await resume(rig.client, "orders")
    await rig.witness.wait(events.Handled, count=2, queue="orders")


async def test_what_is_claimed_already_runs_on(rig: Rig) -> None:
    async def handle(claim: Claim) -> Done:
        await pause(rig.client, "orders", create=True)
        return DONE

    await rig.ended(events.Handled, handle, "a")


async def test_a_paused_queue_takes_messages_and_the_pause_is_none(rig: Rig) -> None:
    await pause(rig.client, "orders", create=True)
    await rig.put("a", timer_id="t")
    await rig.ended(events.Handled, done, "b", queue="mails")
    assert await paused(rig.client) == ["orders"]
    await resume(rig.client, "orders")
    assert (await rig.row())["payload"] == b"a"


FORGED = "insert into {t} (queue, timer_id, payload, next_attempt_at) values ('$paused', 'orders', '', 'infinity')"
"""What a role can write that may insert messages and nothing else."""


class TestForgedPause:
    """A pause holds a lease, which a producer's rights do not let it write."""

    @keyless_and_keyed
    async def test_message_without_a_lease_pauses_nothing(self, driver_rig: Rig, key: str | None) -> None:
        await driver_rig.sql(FORGED)
        await driver_rig.put("a", key=key)
        await driver_rig.work(done, **POLLING)
        await driver_rig.witness.wait(events.Handled)
        assert await paused(driver_rig.client) == []

    async def test_it_is_in_nobodys_way_who_pauses_and_resumes(self, driver_rig: Rig) -> None:
        client = driver_rig.client
        await driver_rig.sql(FORGED)
        answers = [await pause(client, "orders", create=True), await paused(client), await resume(client, "orders")]
        await driver_rig.sql(FORGED)
        assert [*answers, await resume(client, "orders")] == [True, ["orders"], True, False]

    async def test_it_makes_no_name_known(self, driver_rig: Rig) -> None:
        await driver_rig.sql(FORGED)
        with pytest.raises(UnknownName, match="no queue is known yet"):
            await pause(driver_rig.client, "orders")


class TestNames:
    """A queue that nobody knows is most likely a slip of the hand."""

    async def test_unknown_queue_is_refused_with_the_nearest_name(self, driver_rig: Rig) -> None:
        await driver_rig.put("a", queue="mails")
        with pytest.raises(UnknownName, match=r"'mailz'.*did you mean 'mails'\?.*create=True"):
            await pause(driver_rig.client, "mailz")
        with pytest.raises(UnknownName, match="known are 'mails'"):
            await pause(driver_rig.client, "orders")
        assert await paused(driver_rig.client) == []

    async def test_unknown_queue_is_not_taken_for_the_one_to_resume(self, driver_rig: Rig) -> None:
        await pause(driver_rig.client, "mails", create=True)
        with pytest.raises(UnknownName, match=r"did you mean 'mails'\?"):
            await resume(driver_rig.client, "mailz")
        assert await paused(driver_rig.client) == ["mails"]

    async def test_no_queue_at_all_says_so(self, rig: Rig) -> None:
        with pytest.raises(UnknownName, match="no queue is known yet"):
            await pause(rig.client, "orders")

    @keyless_and_keyed
    async def test_queue_with_a_message_is_known_and_not_paused(self, driver_rig: Rig, key: str | None) -> None:
        await driver_rig.put("a", key=key)
        assert not await resume(driver_rig.client, "orders")
        assert await pause(driver_rig.client, "orders")

    async def test_queue_with_a_dead_letter_is_known(self, driver_rig: Rig) -> None:
        worker = await driver_rig.work(Seen(lambda claim: Dead()))
        await driver_rig.put("a")
        await driver_rig.witness.wait(events.Died)
        await worker.stop()
        assert await pause(driver_rig.another_client(), "orders")

    async def test_queue_with_a_worker_is_known(self, rig: Rig) -> None:
        await rig.work(done, "orders")
        assert await pause(rig.client, "orders")

    async def test_names_of_queues_are_found_in_a_crowd(self, driver_rig: Rig) -> None:
        for number in range(30):
            await driver_rig.put("a", queue=f"tenant-{number}", key="k" if number % 2 else None)
        with pytest.raises(UnknownName, match=r"did you mean 'tenant-17'\?"):
            await pause(driver_rig.client, "tenamt-17")

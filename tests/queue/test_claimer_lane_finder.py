"""Probes of many lanes at once: they miss nothing, hold up nothing, and are not needed for a message to come."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.queue.plan import FEW_LANES
from faststream_outbox._internal.wakeup.hint import Hint
from faststream_outbox.queue import DONE, Claim, Done, OutboxClient, pause, resume
from tests.queue.conftest import Intercept, Send
from tests.queue.rig import Rig, Seen, done, hinted
from tests.waiting import eventually

QUEUES = [f"queue {number}" for number in range(10 * FEW_LANES)]
ONE: Mapping[str, Any] = {"max_workers": 1, "fetch_batch_size": 1}
INSERT = "insert into {t} (queue, payload, key) values (:queue, '', :key)"


class Probes:
    """Counts probes, and lets the test do something at each."""

    def __init__(self, intercept: Intercept) -> None:
        self.asked: list[int] = []
        self.error: Exception | None = None
        self.is_done = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

        @intercept
        async def probed(name: str, values: Mapping[str, Any], send: Send) -> Any:
            if name != "find_lanes":
                return await send()
            self.asked.append(len(values["queues"]))
            if self.error is not None:
                raise self.error
            rows = await send()
            self.is_done.set()
            await self.go_on.wait()
            return rows


@pytest.fixture
def probes(intercept: Intercept) -> Probes:
    return Probes(intercept)


@pytest.fixture
def client(rig: Rig) -> OutboxClient:
    """Hears nothing but what the test tells it."""
    return rig.another_client(watch=False, listen=False)


def at_rest(client: OutboxClient) -> bool:
    plans = client.plans.open().values()
    lanes = [lane for plan in plans for lane in plan.lanes.values()]
    return bool(lanes) and all(plan.earliest_scan for plan in plans) and not any(lane.may_have_work for lane in lanes)


@pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])
async def test_what_comes_between_a_probe_and_its_answer_is_found(
    rig: Rig, client: OutboxClient, probes: Probes, key: str | None
) -> None:
    await rig.work(done, QUEUES, client=client, **ONE)
    await eventually(lambda: at_rest(client))
    probes.is_done.clear()
    probes.go_on.clear()
    hinted(client, Hint(None))
    await probes.is_done.wait()
    # The probe has seen nothing. Whoever publishes now tells of it before the probe is heard of.
    await rig.sql(INSERT, queue=QUEUES[33], key=key)
    hinted(client, Hint(None))
    probes.go_on.set()
    await rig.witness.wait(events.Handled, queue=QUEUES[33])


async def test_what_was_seen_is_claimed_although_hints_for_all_queues_do_not_end(
    rig: Rig, client: OutboxClient, intercept: Intercept
) -> None:
    @intercept
    async def flooded(name: str, values: Mapping[str, Any], send: Send) -> Any:
        rows = await send()
        if name in ("claim", "find_lanes"):
            hinted(client, Hint(None, keyed=False))
        return rows

    await rig.sql("insert into {t} (queue, payload) select :queue, '' from generate_series(1, 20)", queue=QUEUES[3])
    await rig.sql(INSERT, queue=QUEUES[99], key=None)
    handle = Seen()
    await rig.work(handle, QUEUES, client=client, **ONE)
    await rig.witness.wait(events.Handled, count=21)
    assert QUEUES[99] in [claim.queue for claim in handle.claims[:10]], "it waited for a queue that has many"


async def test_a_queue_that_never_ends_does_not_hold_up_what_must_be_found_first(
    rig: Rig, client: OutboxClient, probes: Probes
) -> None:
    endless, late = QUEUES[3], QUEUES[99]
    is_found = asyncio.Event()

    async def handle(claim: Claim) -> Done:
        if claim.queue == late:
            is_found.set()
        elif not is_found.is_set():
            await rig.sql(INSERT, queue=endless, key=None)
            hinted(client, Hint(endless))
        return DONE

    await rig.sql("insert into {t} (queue, payload) select :queue, '' from generate_series(1, 3)", queue=endless)
    await rig.work(handle, QUEUES, client=client, **ONE)
    await rig.witness.wait(events.Handled, count=2)
    await rig.sql(INSERT, queue=late, key=None)
    hinted(client, Hint(None))
    async with asyncio.timeout(30):
        await is_found.wait()


async def test_messages_come_although_no_probe_works(rig: Rig, client: OutboxClient, probes: Probes) -> None:
    probes.error = TimeoutError("canceling statement due to statement timeout")
    await rig.sql(INSERT, queue=QUEUES[99], key=None)
    await rig.sql(INSERT, queue=QUEUES[77], key="k")
    await rig.work(done, QUEUES, client=client, **ONE)
    await rig.witness.wait(events.Handled, count=2)
    assert [event.role for event in rig.witness.of(events.StatementFailed)] == ["find_lanes"]


@pytest.mark.slow
async def test_a_probe_that_failed_asks_for_less(rig: Rig, client: OutboxClient, probes: Probes) -> None:
    probes.error = TimeoutError("canceling statement due to statement timeout")
    await rig.work(done, QUEUES, client=client, **ONE)

    def fails_often() -> bool:
        hinted(client, Hint(None))
        return len(probes.asked) >= 3

    await eventually(fails_often)
    assert probes.asked[0] >= len(QUEUES)
    # Claims went round meanwhile: there may be fewer left to ask for.
    assert 0 < probes.asked[2] <= max(FEW_LANES, probes.asked[0] // 16)
    probes.error = None
    await rig.sql(INSERT, queue=QUEUES[99], key=None)
    hinted(client, Hint(None))
    await rig.witness.wait(events.Handled)

    def works_again() -> bool:
        # Claims that went round may have left nothing to ask for.
        hinted(client, Hint(None))
        return [event.role for event in rig.witness.of(events.StatementWorks)] == ["find_lanes"]

    await eventually(works_again)


@pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])
async def test_a_queue_that_was_paused_is_found_when_it_is_resumed(
    rig: Rig, client: OutboxClient, probes: Probes, key: str | None
) -> None:
    await pause(client, QUEUES[50], create=True)
    await rig.sql(INSERT, queue=QUEUES[50], key=key)
    await rig.work(done, QUEUES, client=client, **ONE)
    await eventually(lambda: at_rest(client))
    assert probes.asked
    assert not rig.witness.of(events.Handled)
    await resume(client, QUEUES[50])
    await rig.witness.wait(events.Handled, queue=QUEUES[50])


async def test_priorities_are_kept_in_what_was_seen(rig: Rig, client: OutboxClient) -> None:
    handle = Seen()
    for priority in (0, 7, -5, 3):
        await rig.sql("insert into {t} (queue, payload, priority) values (:q, '', :p)", q=QUEUES[9], p=priority)
    await rig.work(handle, QUEUES, client=client, **ONE)
    await rig.witness.wait(events.Handled, count=4)
    assert [claim.priority for claim in handle.claims] == [7, 3, 0, -5]


async def test_few_queues_are_not_probed(rig: Rig, probes: Probes) -> None:
    await rig.work(done, QUEUES[:FEW_LANES], **ONE)
    await rig.sql(INSERT, queue=QUEUES[2], key=None)
    await rig.witness.wait(events.Handled)
    assert probes.asked == []

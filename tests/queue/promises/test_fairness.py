"""Queues of one worker get equal shares; a higher priority goes first, and the lower ones get through."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox._internal.queue import plan
from faststream_outbox.queue import Claim, Outcome
from tests.queue.rig import Rig, Seen
from tests.waiting import eventually

pytestmark = pytest.mark.slow

FLOOD = (
    "insert into {t} (queue, payload, priority, key)"
    " select :queue, '', :priority, {key} from generate_series(1, :count) i"
)


async def flood(rig: Rig, *, count: int = 3000, queue: str = "orders", priority: int = 0, key: str = "null") -> None:
    """So many messages, whose key is this SQL."""
    await rig.sql(FLOOD.replace("{key}", key), queue=queue, count=count, priority=priority)


class TestQueues:
    async def test_a_short_queue_is_not_held_up_by_a_long_one(self, rig: Rig) -> None:
        handle = Seen()
        await flood(rig, count=1000, queue="long")
        await rig.put(*["x"] * 20, queue="short")
        await rig.work(handle, ["long", "short"])
        await eventually(lambda: len(handle.claims) >= 100)
        assert Counter(claim.queue for claim in handle.claims[:100])["short"] == 20

    async def test_shares_are_equal_while_all_have_messages(self, rig: Rig) -> None:
        handle = Seen()
        queues = [f"q{number}" for number in range(5)]
        await rig.sql("insert into {t} (queue, payload) select 'q' || i / 200, '' from generate_series(0, 999) i")
        await rig.work(handle, queues)
        await eventually(lambda: len(handle.claims) >= 500)
        shares = Counter(claim.queue for claim in handle.claims[:500])
        assert max(shares.values()) - min(shares.values()) <= 20, shares

    async def test_workers_of_one_client_do_not_starve_each_other(self, rig: Rig) -> None:
        await flood(rig, queue="long")
        await rig.put("x", queue="short")
        seen, both_run = Seen(), asyncio.Event()

        async def handle(claim: Claim) -> Outcome:
            await both_run.wait()
            return await seen(claim)

        await rig.work(handle, "long")
        await rig.work(handle, "short")
        both_run.set()
        await eventually(lambda: "x" in seen.bodies)
        assert "x" in seen.bodies[:500]


class TestPriorities:
    @pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])
    async def test_a_higher_one_goes_first(
        self, driver_rig: Rig, key: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Until the first scan nothing but the usual priority is known; on a busy machine it may come late.
        monkeypatch.setattr(plan, "FIRST_SCAN_SECONDS", 30.0)
        handle = Seen()
        for priority in (0, -5, 7, 3):
            await driver_rig.put("x", priority=priority, key=key and f"{key}{priority}")
        await driver_rig.work(handle)
        await driver_rig.witness.wait(events.Handled, count=4)
        assert [claim.priority for claim in handle.claims] == [7, 3, 0, -5]

    async def test_one_that_is_published_later_overtakes(self, rig: Rig) -> None:
        seen, is_published = Seen(), asyncio.Event()

        async def handle(claim: Claim) -> Outcome:
            if len(seen.claims) >= 10:
                await is_published.wait()
            return await seen(claim)

        await flood(rig, count=2000)
        await rig.work(handle, fetch_batch_size=10)
        await rig.witness.wait(events.Handled, count=10)
        await rig.put("urgent", priority=9)
        is_published.set()
        await eventually(lambda: "urgent" in seen.bodies)
        assert "urgent" in seen.bodies[:1000]

    async def test_low_ones_get_through_a_flood_of_high_ones(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("faststream_outbox._internal.queue.lanes.PATIENCE", 0.01)
        handle = Seen()
        await flood(rig, priority=5)
        await rig.put("low", priority=0)
        await rig.put("lower", priority=-1)
        await rig.work(handle)
        await eventually(lambda: {"low", "lower"} <= set(handle.bodies))
        assert {"low", "lower"} <= set(handle.bodies[:2000])


@pytest.mark.parametrize(
    ("others", "key", "most"),
    [
        ({"key": "i % 300", "priority": 5}, "low", 2000),
        # saq#298: those without a key were starved by those with one.
        ({"key": "i % 300"}, None, 1000),
        ({}, "k", 1000),
        ({"key": "'deep'"}, "shallow", 1500),
    ],
    ids=["a low key among high ones", "keyless among keyed", "keyed among keyless", "a shallow key beside a deep one"],
)
async def test_keys_and_keyless_messages_get_through_a_flood_of_others(
    rig: Rig, others: dict[str, Any], key: str | None, most: int
) -> None:
    handle = Seen()
    await flood(rig, **others)
    await rig.put(*["late"] * 3, key=key)
    await rig.work(handle, max_workers=2)
    await eventually(lambda: handle.bodies.count("late") == 3)
    assert handle.bodies[:most].count("late") == 3


async def test_a_deep_key_is_begun_before_all_of_it_was_read(rig: Rig, sent: list[str]) -> None:
    await flood(rig, count=20_000, key="'k'")
    await rig.work(Seen(), max_workers=10)
    await rig.witness.wait(events.Started)
    assert sent.count("find_keys") <= 3

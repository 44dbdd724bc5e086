"""Queues of one worker get equal shares; a higher priority goes first, and the lower ones get through."""

import asyncio
from collections import Counter

import pytest

from faststream_outbox import events
from faststream_outbox._internal.queue import plan
from faststream_outbox.queue import DONE, Claim, Done
from tests.queue.rig import Rig

pytestmark = pytest.mark.slow


class Order:
    """A handler that keeps queue and priority of what it got."""

    def __init__(self) -> None:
        self.queues: list[str] = []
        self.priorities: list[int] = []
        self.keyed: list[bool] = []

    async def __call__(self, claim: Claim) -> Done:
        self.queues.append(claim.queue)
        self.priorities.append(claim.priority)
        self.keyed.append(claim.key is not None)
        return DONE


class TestQueues:
    async def test_a_short_queue_is_not_held_up_by_a_long_one(self, rig: Rig) -> None:
        order = Order()
        await rig.sql("insert into {t} (queue, payload) select 'long', '' from generate_series(1, 1000)")
        await rig.put(*["x"] * 20, queue="short")
        await rig.work(order, ["long", "short"])
        await rig.witness.wait(events.Handled, count=1020)
        last = len(order.queues) - order.queues[::-1].index("short")
        assert last <= 100, f"the last of 20 short ones was number {last} of 1020"

    async def test_shares_are_equal_while_all_have_messages(self, rig: Rig) -> None:
        order = Order()
        queues = [f"q{number}" for number in range(5)]
        await rig.sql("insert into {t} (queue, payload) select 'q' || i / 200, '' from generate_series(0, 999) i")
        await rig.work(order, queues)
        await rig.witness.wait(events.Handled, count=1000)
        shares = Counter(order.queues[:500])
        assert max(shares.values()) - min(shares.values()) <= 20, shares

    async def test_workers_of_one_client_do_not_starve_each_other(self, rig: Rig) -> None:
        await rig.sql("insert into {t} (queue, payload) select 'long', '' from generate_series(1, 3000)")
        await rig.put("x", queue="short")
        order, both_run = Order(), asyncio.Event()

        async def handle(claim: Claim) -> Done:
            await both_run.wait()
            return await order(claim)

        await rig.work(handle, "long")
        await rig.work(handle, "short")
        both_run.set()
        await rig.witness.wait(events.Handled, count=3001)
        assert order.queues.index("short") < 500


class TestPriorities:
    @pytest.mark.parametrize("key", [None, "k"], ids=["keyless", "keyed"])
    async def test_a_higher_one_goes_first(
        self, driver_rig: Rig, key: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Until the first scan nothing but the usual priority is known; on a busy machine it may come late.
        monkeypatch.setattr(plan, "FIRST_SCAN_SECONDS", 30.0)
        order = Order()
        for priority in (0, -5, 7, 3):
            await driver_rig.put("x", priority=priority, key=key and f"{key}{priority}")
        await driver_rig.work(order)
        await driver_rig.witness.wait(events.Handled, count=4)
        assert order.priorities == [7, 3, 0, -5]

    async def test_one_that_is_published_later_overtakes(self, rig: Rig) -> None:
        order, is_published = Order(), asyncio.Event()

        async def handle(claim: Claim) -> Done:
            if len(order.priorities) >= 10:
                await is_published.wait()
            return await order(claim)

        await rig.sql("insert into {t} (queue, payload) select 'orders', '' from generate_series(1, 2000)")
        await rig.work(handle, fetch_batch_size=10)
        await rig.witness.wait(events.Handled, count=10)
        await rig.put("urgent", priority=9)
        is_published.set()
        await rig.witness.wait(events.Handled, count=2001)
        assert 9 in order.priorities[:1000]

    async def test_low_ones_get_through_a_flood_of_high_ones(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("faststream_outbox._internal.queue.lanes.PATIENCE", 0.01)
        order = Order()
        flood = "insert into {t} (queue, payload, priority) select 'orders', '', 5 from generate_series(1, 3000)"
        await rig.sql(flood)
        await rig.put("low", priority=0)
        await rig.put("lower", priority=-1)
        await rig.work(order)
        await rig.witness.wait(events.Handled, count=3002)
        assert max(order.priorities.index(0), order.priorities.index(-1)) < 2000

    async def test_low_keys_get_through_a_flood_of_high_ones(self, rig: Rig) -> None:
        order = Order()
        flood = (
            "insert into {t} (queue, payload, priority, key)"
            " select 'orders', '', 5, i % 300 from generate_series(1, 3000) i"
        )
        await rig.sql(flood)
        await rig.put("low", priority=0, key="low")
        await rig.work(order)
        await rig.witness.wait(events.Handled, count=3001)
        assert order.priorities.index(0) < 2000


class TestKeys:
    """saq#298: those without a key were starved by those with one."""

    async def test_keyless_messages_are_not_starved_by_keyed_ones(self, rig: Rig) -> None:
        order = Order()
        flood = "insert into {t} (queue, payload, key) select 'orders', '', i % 300 from generate_series(1, 3000) i"
        await rig.sql(flood)
        await rig.put("plain")
        await rig.work(order)
        await rig.witness.wait(events.Handled, count=3001)
        assert order.keyed.index(False) < 1000

    async def test_keyed_messages_are_not_starved_by_keyless_ones(self, rig: Rig) -> None:
        order = Order()
        await rig.sql("insert into {t} (queue, payload) select 'orders', '' from generate_series(1, 3000)")
        await rig.put("keyed", key="k")
        await rig.work(order)
        await rig.witness.wait(events.Handled, count=3001)
        assert order.keyed.index(True) < 1000

    async def test_a_deep_key_does_not_hold_up_the_others(self, rig: Rig) -> None:
        seen: list[str | None] = []

        async def handle(claim: Claim) -> Done:
            seen.append(claim.key)
            return DONE

        await rig.sql("insert into {t} (queue, payload, key) select 'orders', '', 'deep' from generate_series(1, 3000)")
        for number in range(10):
            await rig.put("x", key=f"shallow{number}")
        await rig.work(handle, max_workers=2)
        await rig.witness.wait(events.Handled, count=3010)
        last = len(seen) - next(place for place, key in enumerate(reversed(seen)) if key != "deep")
        assert last < 1500

    async def test_a_deep_key_is_begun_before_all_of_it_was_read(self, rig: Rig, sent: list[str]) -> None:
        await rig.sql("insert into {t} (queue, payload, key) select 'orders', '', 'k' from generate_series(1, 20000)")
        await rig.work(Order(), max_workers=10)
        await rig.witness.wait(events.Started)
        assert sent.count("find_keys") <= 3

"""Dead letters that are old enough go away while workers run."""

from datetime import timedelta

import pytest

from faststream_outbox import Retention, events
from faststream_outbox._internal import janitor as upkeep
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.janitor import Upkeep
from faststream_outbox.queue import Dead
from tests.queue.rig import Rig, Seen


async def bury(rig: Rig, *ages: float) -> None:
    """Dead letters that failed so many hours ago, in this order."""
    for number, age in enumerate(ages, 1):
        await rig.sql(
            "insert into {d} (original_id, message_id, queue, payload, created_at, failed_at, failure_reason, "
            "attempts_count, deliveries_count, priority) values (:number, gen_random_uuid(), 'orders', '', now(), "
            "now() - make_interval(hours => :age), 'rejected', 1, 1, 0)",
            number=number, age=age,
        )  # fmt: skip


async def test_old_ones_go_and_young_ones_stay(driver_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = driver_rig
    monkeypatch.setattr(upkeep, "SLICE", 2)
    await bury(rig, 5, 4, 3, 1, 3, 0)
    connections = DedicatedConnection(rig.engine), DedicatedConnection(rig.engine)
    often = {"keep": timedelta(hours=2), "every": timedelta(minutes=1)}
    chores = Upkeep(rig.client.names, rig.client.events, *connections, **often)
    await chores.janitor.round()
    assert [row["original_id"] for row in await rig.dead()] == [4, 6]
    assert [event.count for event in rig.witness.of(events.DeadLettersPurged)] == [4]


async def test_they_go_by_themselves_where_a_policy_was_given(rig: Rig) -> None:
    policy = Retention(dead_letters=timedelta(0), every=timedelta(seconds=0.05))
    client = rig.another_client(retention=policy)
    await rig.work(Seen(lambda claim: Dead()), client=client)
    await rig.put("bad", client=client)
    await rig.witness.wait(events.DeadLettersPurged)
    assert await rig.dead() == []

"""Thousands of queues in one table, or of one worker: those that have nothing cost no claim of their own."""

from collections import Counter

import pytest

from faststream_outbox import events
from faststream_outbox.overview import Overview
from tests.queue.rig import Rig, done
from tests.waiting import eventually

pytestmark = pytest.mark.slow

OF_CLAIMER = ("claim", "claim_found", "claim_keys", "overtaken", "find_keys", "find_lanes")
MOST = 12
"""Statements of the claimer until a message is found, however many queues there are. One lane after the other would be
hundreds."""
QUEUES = [f"queue {number}" for number in range(3000)]
LATE = "queue 777"
"""Neither the first nor the last in any order."""


def asked(sent: list[str]) -> Counter[str]:
    return Counter(name for name in sent if name in OF_CLAIMER)


def at_rest(rig: Rig) -> bool:
    return not any(lane.may_have_work for plan in rig.client.plans.open().values() for lane in plan.lanes.values())


async def test_a_claim_reads_no_more_than_the_queues_that_it_asks_for(rig: Rig) -> None:
    await rig.sql("insert into {t} (queue, payload) select 'queue ' || i, '' from generate_series(1, 10000) i")
    await rig.sql("analyze {t}")
    some = ["queue 1", "queue 5000", "queue 10000"]
    place = {"queues": some, "priorities": [0] * 3, "floor_ats": [None] * 3, "floor_ids": [0] * 3}
    values = place | {
        **{"quotas": [1] * 3, "ttls": [60.0] * 3, "unheard": []},
        "token": "6f1f6c0e-0000-4000-8000-000000000000",
    }
    async with rig.engine.connect() as connection:
        cost = await rig.explain("claim", "claim", values, connection)
        await connection.rollback()
    assert cost.rows <= 12
    assert cost.buffers <= 100


async def test_questions_about_ten_thousand_queues_are_answered(rig: Rig) -> None:
    await rig.sql("insert into {t} (queue, payload) select 'queue ' || i, '' from generate_series(1, 10000) i")
    overview = Overview(rig.engine, table=rig.table, dlq_table=rig.dlq_table, timeout=60.0)
    try:
        assert len(await overview.queues()) == 10_000
        assert len(await overview.queues("queue 77")) == 1
        assert len(await overview.timers(limit=5)) == 0
    finally:
        await overview.close()


@pytest.mark.parametrize("count", [1000, 3000])
async def test_the_first_message_is_found_with_few_claims(rig: Rig, sent: list[str], count: int) -> None:
    await rig.put("x", queue=LATE)
    await rig.work(done, QUEUES[:count], max_workers=1, fetch_batch_size=1)
    await rig.witness.wait(events.Handled)
    assert asked(sent).total() <= MOST, asked(sent)


@pytest.mark.parametrize("how", ["announced", "by a stranger", "with a key", "by a stranger, with a key"])
async def test_a_burst_to_one_of_them_is_found_with_few_claims(rig: Rig, sent: list[str], how: str) -> None:
    await rig.put("x", queue=LATE)
    await rig.work(done, QUEUES, max_workers=1, fetch_batch_size=1)
    await rig.witness.wait(events.Handled)
    await eventually(lambda: at_rest(rig))
    sent.clear()
    key = "k" if "key" in how else None
    if "stranger" in how:
        insert = "insert into {t} (queue, payload, key) select :queue, '', :key from generate_series(1, 10)"
        await rig.sql(insert, queue=LATE, key=key)
    else:
        await rig.put(*"0123456789", queue=LATE, key=key)
    await rig.witness.wait(events.Handled, count=2)
    assert asked(sent).total() <= MOST, asked(sent)
    await rig.witness.wait(events.Handled, count=11)

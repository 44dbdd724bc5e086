"""Ten thousand queues in one table: a claim reads those that it asks for, and questions are answered."""

import pytest

from faststream_outbox.overview import Overview
from tests.queue.rig import Rig

pytestmark = pytest.mark.slow


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

"""Ten thousand queues: a worker of all of them asks no more often and reads no more than one of few."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from faststream_outbox import events
from faststream_outbox.connections.dedicated import DedicatedConnection, Row
from faststream_outbox.overview import Overview
from faststream_outbox.queue import DONE, Claim, Outcome
from faststream_outbox.sql import Statement
from tests.queue.rig import Rig

pytestmark = pytest.mark.slow

QUEUES = [f"queue {number:05}" for number in range(10_000)]


class Asked:
    """How often each statement was run, and for how many lanes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: Counter[str] = Counter()
        self.lanes = 0
        fetch = DedicatedConnection.fetch

        async def counted(
            connection: DedicatedConnection, statement: Statement, values: Mapping[str, Any]
        ) -> Sequence[Row]:
            self.times[statement.name] += 1
            if statement.name == "claim":
                self.lanes = max(self.lanes, len(values["queues"]))
            return await fetch(connection, statement, values)

        monkeypatch.setattr(DedicatedConnection, "fetch", counted)


async def done(claim: Claim) -> Outcome:
    return DONE


async def test_a_message_costs_as_few_statements_as_with_one_queue(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    await rig.work(done, QUEUES, fetch_batch_size=50)
    await rig.witness.wait(events.ListenerReady)
    await rig.put("first", queue=QUEUES[5000])
    await rig.witness.wait(events.Handled)
    before = asked.times["claim"]
    for number in range(20):
        await rig.put("more", queue=QUEUES[number * 400])
        await rig.witness.wait(events.Handled, count=2 + number)
    assert asked.lanes <= 50
    # One that finds the message and one that finds no other.
    assert asked.times["claim"] - before <= 3 * 20


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

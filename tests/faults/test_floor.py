"""Messages that appear below the place that a claimer has reached do not wait for the next look from the beginning.

Publishers overlap: of two transactions the one that inserted first may commit last, by up to 200 ms here. The looks
from the beginning, which would find such messages in any case, are put off beyond the end of each test.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from bench.latency import Way, measured
from bench.stage import Stage
from faststream_outbox import events
from faststream_outbox._internal.envelope import Envelope
from faststream_outbox._internal.queue.lanes import GRACE
from faststream_outbox.publish import publish
from faststream_outbox.queue import DONE, Claim, Outcome
from faststream_outbox.schema import make_dlq_table, make_outbox_table
from tests.queue.rig import Rig

pytestmark = pytest.mark.faults

SELDOM: dict[str, Any] = {"min_fetch_interval": 120.0, "max_fetch_interval": 120.0}
SOON = 20.0
"""Seconds, on a machine that is very busy; the next look from the beginning is far later."""


@pytest.fixture
async def stage(engine: AsyncEngine) -> AsyncIterator[Stage]:
    metadata = MetaData()
    made = Stage(engine, make_outbox_table(metadata), make_dlq_table(metadata))
    await made.reset()
    yield made
    async with engine.begin() as connection:
        await connection.run_sync(metadata.drop_all)
        await connection.execute(text("drop table business"))


@pytest.mark.parametrize("snapshot", [False, True], ids=["no_snapshot", "old_snapshot"])
@pytest.mark.parametrize("way", ["hints", "no hints"])
async def test_messages_of_overlapping_publishers_are_found_soon(
    stage: Stage, way: Way, seed: int, snapshot: bool
) -> None:
    found = await measured(stage, way, snapshot=snapshot, seconds=2.0, seed=seed, **SELDOM)
    assert len(found.seconds) == found.published
    assert max(found.seconds) < SOON


async def test_message_that_appeared_while_all_hands_were_full_is_found_at_once(rig: Rig) -> None:
    may_end = asyncio.Event()

    async def handle(claim: Claim) -> Outcome:
        await may_end.wait()
        return DONE

    await rig.work(handle, **SELDOM)
    async with AsyncSession(rig.engine) as slower:
        await publish(slower, rig.table, Envelope(queue="orders", body=b"late"), wakeups=rig.client.wakeups)
        await rig.put("first")
        await rig.witness.wait(events.Started)
        await slower.commit()
    await asyncio.sleep(GRACE + 0.5)
    may_end.set()
    await rig.witness.wait(events.Handled, count=2)

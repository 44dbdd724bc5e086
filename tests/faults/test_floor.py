"""Messages that appear below the place that a claimer has reached do not wait for the next look from the beginning.

Publishers overlap: of two transactions the one that inserted first may commit last, by up to 200 ms here. A look
from the beginning comes once a second at most, so that a p99 far below that says that none was waited for.
"""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine

from bench.latency import Latencies, Way, measured
from bench.stage import Stage
from faststream_outbox.schema import make_dlq_table, make_outbox_table

pytestmark = pytest.mark.faults

LOOK_FROM_THE_BEGINNING = 0.5
"""Half the shortest distance of two such looks."""


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
async def test_no_message_of_overlapping_publishers_waits_for_a_look_from_the_beginning(
    stage: Stage, way: Way, seed: int, snapshot: bool
) -> None:
    found: Latencies = await measured(stage, way, snapshot=snapshot, seconds=4.0, seed=seed)
    print(f"{way}, snapshot {snapshot}: {found}")
    assert len(found.seconds) == found.published
    assert found.at(99) < LOOK_FROM_THE_BEGINNING

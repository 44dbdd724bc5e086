"""What the janitor does for a log while somebody reads it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox import Retention, events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.admin.retention import Upkeep
from faststream_outbox.log import make_log_tables
from tests.log.opened import Collector, delivered
from tests.log.rig import LogRig
from tests.waiting import eventually

OFTEN = {"every": timedelta(seconds=0.05)}


@asynccontextmanager
async def read(rig: LogRig, retention: Retention) -> AsyncIterator[Collector]:
    """A process that reads and keeps the log in order."""
    outbox = await rig.another(retention=retention)
    seen, stop = Collector(), asyncio.Event()
    running = asyncio.create_task(outbox.run(seen, "g", stop_event=stop))
    try:
        yield seen
    finally:
        stop.set()
        await running


def upkeep(rig: LogRig, **policy: Any) -> Upkeep:
    client = rig.outbox.client
    return Upkeep(client, Retention(**policy), DedicatedConnection(rig.engine), DedicatedConnection(rig.engine))


async def test_what_is_read_goes_away_by_itself(driver_rig: LogRig) -> None:
    rig = driver_rig
    await rig.put("k", 1, 2)
    async with read(rig, Retention(messages=timedelta(0), **OFTEN)) as seen:
        await eventually(lambda: seen.payloads == [1, 2])
        await eventually(lambda: sum(event.messages for event in rig.reported(events.LogCleaned)) == 2)
    assert await rig.committed() == []
    assert rig.reported(events.ChoreFailed) == []


async def test_what_is_young_stays(rig: LogRig) -> None:
    await rig.put("k", 1)
    await delivered(rig.outbox, "g")
    await upkeep(rig, messages=timedelta(days=1)).janitor.round()
    assert (await rig.committed(), rig.reported(events.LogCleaned)) == ([1], [])


async def test_expired_group_is_told_once_and_again_after_it_came_back(rig: LogRig) -> None:
    await rig.put("k", 1)
    await delivered(rig.outbox, "g")
    await rig.put("k", 2)
    await rig.sequence()
    chores = upkeep(rig, messages=timedelta(days=1))
    for updated in ("40 days", "40 days", "0 days", "40 days"):
        await rig.ask(f"update {{offsets}} set updated_at = now() - interval '{updated}'")
        await chores.clean()
    assert len(rig.reported(events.GroupExpired)) == 2


@pytest.fixture
async def parts(engine: AsyncEngine) -> AsyncIterator[LogRig]:
    tables = make_log_tables(MetaData(), "grown", "grown_offsets", partitioned=True)
    async with LogRig.made(engine, tables=tables) as rig:
        yield rig


async def names(rig: LogRig) -> list[str]:
    asked = "select relname from pg_inherits join pg_class on oid = inhrelid where inhparent = 'grown'::regclass"
    return sorted(row["relname"] for row in await rig.ask(asked) if row["relname"] != "grown_rest")


async def test_partitions_are_made_ahead_of_the_growth(parts: LogRig) -> None:
    await parts.outbox.partitions(10).ensure(ahead=1)
    await parts.put("k", 0)
    chores = upkeep(parts)
    await chores.make_partitions()
    assert await names(parts) == ["grown_p0", "grown_p1", "grown_p2"]
    await parts.put("k", *range(15))
    await chores.make_partitions()
    # Fifteen since the last round: ten rounds of it are fifteen partitions, behind the second.
    assert len(await names(parts)) == 2 + 15
    made = [name for event in parts.reported(events.PartitionsMade) for name in event.names]
    assert sorted(["grown_p0", "grown_p1", *made]) == await names(parts)


@pytest.mark.slow
async def test_partitioned_log_without_partitions_gets_some_and_loses_those_that_are_read(parts: LogRig) -> None:
    assert await names(parts) == []
    async with read(parts, Retention(messages=timedelta(0), **OFTEN)) as seen:
        await eventually(lambda: parts.reported(events.PartitionsMade))
        await parts.put("k", 1)
        await eventually(lambda: seen.payloads == [1])
    assert await names(parts) == ["grown_p0", "grown_p1", "grown_p2"]
    assert parts.reported(events.ChoreFailed) == []

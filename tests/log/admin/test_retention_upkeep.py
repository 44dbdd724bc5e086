"""What the janitor does for a log while somebody reads it."""

from datetime import timedelta
from typing import Any

import pytest

from faststream_outbox import Retention, events
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.admin.retention import Upkeep
from tests.log.admin.conftest import attached
from tests.log.opened import Collector, delivered, reading
from tests.log.rig import LogRig
from tests.waiting import eventually

AT_ONCE = Retention(messages=timedelta(0), every=timedelta(seconds=0.05))


def upkeep(rig: LogRig, **policy: Any) -> Upkeep:
    client = rig.outbox.client
    return Upkeep(client, Retention(**policy), DedicatedConnection(rig.engine), DedicatedConnection(rig.engine))


async def test_what_is_read_goes_away_by_itself(driver_rig: LogRig) -> None:
    rig = driver_rig
    await rig.put("k", 1, 2)
    seen = Collector()
    async with reading(await rig.another(retention=AT_ONCE), seen, "g"):
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
    await rig.put_apart("k", 2)
    chores = upkeep(rig, messages=timedelta(days=1))
    for updated in ("40 days", "40 days", "0 days", "40 days"):
        await rig.ask(f"update {{offsets}} set updated_at = now() - interval '{updated}'")
        await chores.clean()
    assert len(rig.reported(events.GroupExpired)) == 2


async def test_partitions_are_made_ahead_of_the_growth(bare: LogRig) -> None:
    await bare.outbox.partitions(10).ensure(ahead=1)
    await bare.put("k", 0)
    chores = upkeep(bare)
    await chores.make_partitions()
    assert await attached(bare) == ["parted_p0", "parted_p1", "parted_p2"]
    await bare.put("k", *range(15))
    await chores.make_partitions()
    # Fifteen since the last round: ten rounds of it are fifteen partitions, behind the second.
    assert len(await attached(bare)) == 2 + 15
    made = [name for event in bare.reported(events.PartitionsMade) for name in event.names]
    assert sorted(["parted_p0", "parted_p1", *made]) == await attached(bare)


@pytest.mark.slow
async def test_partitioned_log_without_partitions_gets_some_and_loses_those_that_are_read(bare: LogRig) -> None:
    assert await attached(bare) == []
    seen = Collector()
    async with reading(await bare.another(retention=AT_ONCE), seen, "g"):
        await eventually(lambda: bare.reported(events.PartitionsMade))
        await bare.put("k", 1)
        await eventually(lambda: seen.payloads == [1])
    assert await attached(bare) == ["parted_p0", "parted_p1", "parted_p2"]
    assert bare.reported(events.ChoreFailed) == []

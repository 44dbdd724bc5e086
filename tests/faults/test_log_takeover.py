"""One member of a group dies, hangs or is slow, and another one is there.

What the dead held is taken over within its lease; the slow keep what they hold; and nobody's slots wait for the
transaction of somebody else.
"""

import asyncio
from dataclasses import replace
from time import perf_counter
from typing import Any

import pytest

from tests.faults.log_business import LogBusiness, Manner
from tests.faults.log_child import LogPart
from tests.faults.log_scene import OFFSETS, LogScene
from tests.faults.processes import LogProcess, LogTroupe
from tests.waiting import eventually

pytestmark = pytest.mark.faults

GROUP = "billing"
LEASE_SECONDS = 2.0
SLACK = 10.0
"""Seconds to start handling, on a machine that is very busy. Nobody polls, so that only the lease's end brings it."""
NAMES = 40
ONCE_EACH = Manner(names=NAMES, rollbacks=0.0, held=0.0, shortest=0.0)


@pytest.fixture
def part(log_scene: LogScene, seed: int) -> LogPart:
    options: dict[str, Any] = {"lease_ttl_seconds": LEASE_SECONDS}
    return LogPart(log_scene.world, log_scene.record, seed, GROUP, transactional=True, options=options)


async def two(members: LogTroupe, first: LogPart, second: LogPart) -> tuple[LogProcess, LogProcess]:
    """Two members that hold half of the slots each."""
    (one,) = await members.start(first)
    await one.reaches("slots 256")
    (other,) = await members.start(second)
    await asyncio.gather(one.reaches("slots 128"), other.reaches("slots 128"))
    return one, other


async def test_slots_of_a_killed_member_are_read_by_another_within_its_lease(
    log_scene: LogScene, log_business: LogBusiness, members: LogTroupe, part: LogPart
) -> None:
    part = replace(part, poll_interval=3600.0)
    one, _ = await two(members, part, part)
    await log_business.publish(ONCE_EACH, transactions=NAMES)
    await eventually(lambda: not log_scene.left(GROUP), message="both members read")
    await one.kill()
    killed = perf_counter()
    await log_business.publish(ONCE_EACH, transactions=NAMES, name=1)
    await log_scene.is_finished(GROUP)
    seconds = perf_counter() - killed
    assert seconds < LEASE_SECONDS + SLACK


async def test_handler_that_takes_longer_than_its_lease_keeps_it(
    log_scene: LogScene, log_business: LogBusiness, members: LogTroupe, part: LogPart
) -> None:
    slow = 2 * LEASE_SECONDS
    part = replace(part, shortest=slow, longest=slow)
    await two(members, part, part)
    holders = f"select lo, owner, epoch from {OFFSETS} order by lo"
    held = log_scene.ask(holders)
    await log_business.publish(ONCE_EACH, transactions=1)
    await log_scene.is_finished(GROUP)
    assert (len(log_scene.effects()), log_scene.ask(holders)) == (1, held)


async def test_slots_of_others_do_not_wait_for_a_member_that_hangs_with_its_transaction_open(
    log_scene: LogScene, log_business: LogBusiness, members: LogTroupe, part: LogPart
) -> None:
    hanging, _ = await two(members, replace(part, hang="commit"), part)
    await log_business.publish(ONCE_EACH, transactions=NAMES)
    await hanging.reaches("commit")
    hanging.freeze()
    expired = f"select count(*) from {OFFSETS} where until < clock_timestamp() - interval '1 second'"
    await eventually(lambda: log_scene.ask(expired)[0][0], message="the lease of the frozen member has run out")
    before = len(log_scene.effects())
    await log_business.publish(ONCE_EACH, transactions=NAMES, name=1)
    await eventually(lambda: len(log_scene.effects()) > before, message="the other member reads its own slots")


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_log_goes_on_although_a_member_is_frozen_in_the_middle_of_a_tick(
    log_scene: LogScene, log_business: LogBusiness, members: LogTroupe, part: LogPart, driver: str
) -> None:
    part = replace(part, transactional=False)
    (frozen,) = await members.start(replace(part, hang="tick", driver=driver))
    await log_business.publish(ONCE_EACH, transactions=1)
    await frozen.reaches("tick")
    await members.start(part)
    await log_business.publish(ONCE_EACH, transactions=NAMES, name=1)
    await log_scene.is_finished(GROUP, plain=True)

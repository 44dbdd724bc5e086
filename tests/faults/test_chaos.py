"""Everything at once: publishers that roll back, keys, retries, dead letters, effects, and workers killed at random.

Then the account: what was committed is what was handled or is a dead letter, once, in order per key.
"""

import asyncio
import random
from dataclasses import replace

import pytest

from tests.faults.account import Account
from tests.faults.business import Business, Habit
from tests.faults.child import EFFECTS, PLAIN, Part
from tests.faults.processes import Troupe
from tests.faults.scene import Scene

pytestmark = pytest.mark.faults

WORKERS = 3
HABITS = (
    Habit(PLAIN),
    Habit(PLAIN, keys=10),
    Habit(EFFECTS),
    Habit(EFFECTS, keys=5, rollbacks=0.3),
)


async def kill_at_random(children: Troupe, part: Part, chance: random.Random, seconds: float) -> int:
    """Kill a worker now and then and start another, for so long; gives the number of kills."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    kills = 0
    async with asyncio.TaskGroup() as starting:
        while loop.time() < until:
            await asyncio.sleep(chance.uniform(0.5, 1.5))
            if children.alive:
                await chance.choice(children.alive).kill()
                kills += 1
                starting.create_task(children.start(part))
    return kills


async def chaos(
    scene: Scene, business: Business, children: Troupe, seed: int, *, seconds: float, pause: float = 0.02
) -> Account:
    """Let it all happen for so long, let the workers finish, and draw up the account."""
    options = {"lease_ttl_seconds": scene.lease_seconds, "min_fetch_interval": 0.3, "max_workers": 4}
    part = Part(
        scene.world, scene.record, [PLAIN, EFFECTS], seed, longest=0.02, retries=0.1, dead=0.05, options=options
    )
    await children.start(*[part] * WORKERS)
    habits = [replace(habit, pause=pause) for habit in HABITS]
    load = [business.publish_for(habit, seconds, name=number) for number, habit in enumerate(habits)]
    kills, *_ = await asyncio.gather(kill_at_random(children, part, random.Random(seed), seconds), *load)
    await scene.is_finished()
    account = scene.account()
    print(account, f"{kills} workers killed", sep="; ")
    assert kills > 0
    assert account.taken_over > 0
    assert account.committed == account.handled + account.dead
    return account


async def test_account_of_some_seconds_of_chaos(scene: Scene, business: Business, children: Troupe, seed: int) -> None:
    account = await chaos(scene, business, children, seed, seconds=8.0)
    assert not account.wrongs()


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_account_of_ten_minutes_of_chaos(scene: Scene, business: Business, children: Troupe, seed: int) -> None:
    # Slowly enough for a busy machine, or the end would be spent on the backlog.
    account = await chaos(scene, business, children, seed, seconds=600.0, pause=0.25)
    assert not account.wrongs()

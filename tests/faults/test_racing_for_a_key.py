"""Ten workers in five processes race for the messages of one key, and it is handled in order, one at a time."""

import asyncio

import pytest

from tests.faults.account import Account
from tests.faults.business import Business, Habit
from tests.faults.child import Part
from tests.faults.processes import Troupe
from tests.faults.scene import PLAIN, Scene
from tests.waiting import eventually

pytestmark = pytest.mark.faults

PROCESSES = 5
VERSIONS = 200


async def raced(scene: Scene, business: Business, children: Troupe, seed: int, pause: float) -> Account:
    """Publish all versions of one key while the workers race, and draw up the account."""
    options = {"lease_ttl_seconds": 30.0, "min_fetch_interval": 0.5, "max_workers": 2}
    parts = [
        Part(scene.world, scene.record, [PLAIN], seed + number, clients=2, longest=0.002, retries=0.2, options=options)
        for number in range(PROCESSES)
    ]
    await children.start(*parts)
    habit = Habit(PLAIN, keys=1, rollbacks=0.0, most=1, longest=0.0)
    for number in range(VERSIONS):
        await business.publish(habit, transactions=1, name=number)
        await asyncio.sleep(pause)
    await eventually(lambda: scene.left() == 0, 30.0, "all versions are handled")
    account = scene.account()
    busy = len({run.pid for run in scene.runs()})
    print(account, f"{busy} processes had a share", sep="; ")
    assert account.handled == VERSIONS
    return account


async def test_a_backlog_of_one_key_is_handled_in_order_one_at_a_time(
    scene: Scene, business: Business, children: Troupe, seed: int
) -> None:
    account = await raced(scene, business, children, seed, pause=0.0)
    assert not account.wrongs()


async def test_a_trickle_of_one_key_is_handled_in_order_one_at_a_time(
    scene: Scene, business: Business, children: Troupe, seed: int
) -> None:
    # Slow enough for every message to wake every worker.
    account = await raced(scene, business, children, seed, pause=0.02)
    assert not account.wrongs()

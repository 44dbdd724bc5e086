"""Ten workers in five processes race for the messages of one key, and it is handled in order, one at a time."""

import asyncio

import pytest

from tests.faults.business import Business, Habit
from tests.faults.child import PLAIN, Part
from tests.faults.processes import Troupe
from tests.faults.scene import Scene

pytestmark = pytest.mark.faults

PROCESSES = 5
BACKLOG = 100
TRICKLE = 100


async def test_ten_workers_handle_one_key_in_order_and_one_at_a_time(
    scene: Scene, business: Business, children: Troupe, seed: int
) -> None:
    habit = Habit(PLAIN, keys=1, rollbacks=0.0, most=1, longest=0.0)
    await business.publish(habit, transactions=BACKLOG)
    options = {"lease_ttl_seconds": 30.0, "min_fetch_interval": 0.5, "max_workers": 2}
    parts = [
        Part(scene.world, scene.record, [PLAIN], seed + number, clients=2, longest=0.002, retries=0.2, options=options)
        for number in range(PROCESSES)
    ]
    await children.start(*parts)
    for number in range(1, TRICKLE + 1):
        await business.publish(habit, transactions=1, name=number)
        # Slow enough for every message to wake every worker.
        await asyncio.sleep(0.02)
    await scene.is_finished()
    account = scene.account()
    shares = len({run.pid for run in scene.runs()})
    print(account, f"{shares} processes had a share", sep="; ")
    assert shares > 1
    assert account.handled == BACKLOG + TRICKLE
    assert not account.wrongs()

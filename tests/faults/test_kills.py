"""A worker is killed with -9 at the worst moments; another one, which was there all the time, finishes everything.

It does so when the lease has run out, and not before.
"""

from dataclasses import replace

import pytest

from tests.faults.business import Business, Habit
from tests.faults.child import PLAIN, Part
from tests.faults.processes import Troupe
from tests.faults.scene import Scene

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(("hang", "keys"), [("handler", 0), ("settle", 3), ("claim", 0), ("claim_keys", 3)])
async def test_nothing_is_lost_and_no_lease_stolen_when_a_worker_is_killed(
    scene: Scene, business: Business, children: Troupe, seed: int, hang: str, keys: int
) -> None:
    options = {"lease_ttl_seconds": scene.lease_seconds, "min_fetch_interval": 0.2, "max_workers": 2}
    part = Part(scene.world, scene.record, [PLAIN], seed, longest=0.005, options=options)
    await business.publish(Habit(PLAIN, keys, longest=0.0), transactions=20)
    (first,) = await children.start(replace(part, hang=hang))
    await first.reaches(hang)
    await children.start(part)
    await first.kill()
    await scene.is_finished()
    account = scene.account()
    print(account)
    assert account.taken_over > 0
    assert not account.wrongs()

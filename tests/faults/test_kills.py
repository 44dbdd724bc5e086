"""A worker is killed with -9 at the worst moments; another one, which was there all the time, finishes everything.

It does so when the lease has run out, and not before.
"""

from datetime import UTC, datetime, timedelta

import pytest

from tests.faults.business import Business, Habit
from tests.faults.child import PLAIN, Part
from tests.faults.conftest import LEASE_SECONDS
from tests.faults.processes import Troupe
from tests.faults.scene import Scene

pytestmark = pytest.mark.faults

SLACK = 10.0
"""Seconds to look from the beginning and to claim, on a machine that is very busy."""


def part(scene: Scene, seed: int, hang: str | None = None) -> Part:
    options = {"lease_ttl_seconds": scene.lease_seconds, "min_fetch_interval": 0.2, "max_workers": 2}
    return Part(scene.world, scene.record, [PLAIN], seed, hang=hang, longest=0.005, options=options)


async def killed(children: Troupe, scene: Scene, seed: int, hang: str) -> datetime:
    """Kill a worker when it hangs there, let another finish, and give the time of the kill."""
    (first,) = await children.start(part(scene, seed, hang))
    await first.reaches(hang)
    await children.start(part(scene, seed))
    await first.kill()
    at = datetime.now(UTC)
    await scene.is_finished()
    return at


@pytest.mark.parametrize(("hang", "keys"), [("handler", 0), ("settle", 3), ("claim", 0), ("claim_keys", 3)])
async def test_nothing_is_lost_and_no_lease_stolen_when_a_worker_is_killed(
    scene: Scene, business: Business, children: Troupe, seed: int, hang: str, keys: int
) -> None:
    await business.publish(Habit(PLAIN, keys, longest=0.0), transactions=20)
    await killed(children, scene, seed, hang)
    account = scene.account()
    print(account)
    assert account.taken_over > 0
    assert not account.wrongs()


@pytest.mark.parametrize("hang", ["handler", "settle"])
async def test_message_of_a_killed_worker_runs_again_soon_after_its_lease(
    scene: Scene, business: Business, children: Troupe, seed: int, hang: str
) -> None:
    await business.publish(Habit(PLAIN, most=1, rollbacks=0.0), transactions=1)
    at = await killed(children, scene, seed, hang)
    first, again = scene.runs()
    # The lease was renewed at most just before the kill; then comes the next look from the beginning.
    assert again.acquired_at <= at + timedelta(seconds=LEASE_SECONDS + LEASE_SECONDS / 2 + SLACK)
    assert first.pid != again.pid

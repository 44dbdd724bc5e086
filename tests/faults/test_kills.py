"""A worker is killed with -9 at the worst moments; another one finishes everything, and waits for the lease."""

from datetime import timedelta

import pytest

from tests.faults.business import Business, Habit
from tests.faults.child import Part
from tests.faults.processes import Troupe
from tests.faults.scene import PLAIN, Scene
from tests.waiting import eventually

pytestmark = pytest.mark.faults


def part(scene: Scene, seed: int, hang: str | None = None) -> Part:
    options = {"lease_ttl_seconds": scene.lease_seconds, "min_fetch_interval": 0.2, "max_workers": 2}
    return Part(scene.world, scene.record, [PLAIN], seed, hang=hang, longest=0.005, options=options)


async def killed(children: Troupe, scene: Scene, seed: int, hang: str) -> int:
    """Kill a worker when it hangs there, let another finish, and give the pid of the killed one."""
    (first,) = await children.start(part(scene, seed, hang))
    await first.reaches(hang)
    await first.kill()
    await children.start(part(scene, seed))
    await eventually(lambda: scene.left() == 0, 20.0, "the other worker finishes all")
    return first.pid


@pytest.mark.parametrize("keys", [0, 3], ids=["without_keys", "with_keys"])
@pytest.mark.parametrize("hang", ["handler", "settle"])
async def test_nothing_is_lost_when_a_worker_is_killed(
    scene: Scene, business: Business, children: Troupe, seed: int, hang: str, keys: int
) -> None:
    await business.publish(Habit(PLAIN, keys, longest=0.0), transactions=20)
    await killed(children, scene, seed, hang)
    account = scene.account()
    print(account)
    assert not account.wrongs()


@pytest.mark.parametrize(("hang", "keys"), [("claim", 0), ("claim_keys", 3)])
async def test_nothing_is_lost_when_a_worker_is_killed_with_a_claim_that_it_never_saw(
    scene: Scene, business: Business, children: Troupe, seed: int, hang: str, keys: int
) -> None:
    await business.publish(Habit(PLAIN, keys, longest=0.0), transactions=20)
    await killed(children, scene, seed, hang)
    account = scene.account()
    print(account)
    assert account.taken_over > 0
    assert not account.wrongs()


@pytest.mark.parametrize("hang", ["handler", "settle"])
async def test_message_of_a_killed_worker_runs_again_only_after_its_lease(
    scene: Scene, business: Business, children: Troupe, seed: int, hang: str
) -> None:
    await business.publish(Habit(PLAIN, most=1, rollbacks=0.0), transactions=1)
    pid = await killed(children, scene, seed, hang)
    first, again = scene.runs()
    assert (first.pid == pid, again.pid == pid) == (True, False)
    assert again.acquired_at >= first.acquired_at + timedelta(seconds=scene.lease_seconds)


async def test_message_of_a_killed_worker_does_not_wait_much_longer_than_its_lease(
    scene: Scene, business: Business, children: Troupe, seed: int
) -> None:
    await business.publish(Habit(PLAIN, most=1, rollbacks=0.0), transactions=1)
    await killed(children, scene, seed, "handler")
    first, again = scene.runs()
    assert again.acquired_at <= first.acquired_at + timedelta(seconds=2 * scene.lease_seconds + 1.0)

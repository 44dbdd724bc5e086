"""A worker freezes beyond its lease, another takes the message, and the first goes on as if nothing had happened.

Whatever it decides then, it changes nothing: the message belongs to the other one.
"""

from typing import Any

import pytest

from tests.faults.business import Business, Habit
from tests.faults.child import EFFECTS, LOST, PLAIN, Part
from tests.faults.processes import Troupe
from tests.faults.scene import Scene
from tests.waiting import eventually

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(
    ("queue", "decision"),
    [(PLAIN, {}), (PLAIN, {"retries": 1.0}), (PLAIN, {"dead": 1.0}), (EFFECTS, {})],
    ids=["done", "retry", "dead", "effect"],
)
async def test_decision_of_a_worker_that_lost_its_lease_changes_nothing(
    scene: Scene, business: Business, children: Troupe, seed: int, queue: str, decision: dict[str, Any]
) -> None:
    options = {"lease_ttl_seconds": scene.lease_seconds, "min_fetch_interval": 0.2}
    slow = Part(scene.world, scene.record, [queue], seed, shortest=1.0, longest=1.0, options=options, **decision)
    (frozen,) = await children.start(slow)
    await business.publish(Habit(queue, most=1, rollbacks=0.0, longest=0.0), transactions=1)
    await eventually(lambda: len(scene.runs()) == 1, message="the handler runs")
    frozen.freeze()
    (heir,) = await children.start(Part(scene.world, scene.record, [queue], seed, hang="handler", options=options))
    await heir.reaches("handler")
    ((token,),) = scene.ask("select acquired_token from outbox")
    frozen.thaw()
    await frozen.reaches(LOST)
    # Its stop waits until everything that it decided was written, or refused.
    assert await frozen.stop() == 0
    assert scene.ask("select acquired_token from outbox") == [(token,)]
    assert scene.ask("select * from outbox_dlq") == []
    assert scene.ask("select * from effects") == []

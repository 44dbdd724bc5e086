"""The other broker is killed, and then the worker that could not forward to it: everything arrives all the same."""

from collections.abc import AsyncIterator

import pytest

from tests.faults.forwarding_child import QUEUE, STREAM, Route
from tests.faults.processes import Troupe, WorkerProcess, troupe
from tests.faults.scene import Scene
from tests.servers.nats_server import NatsServer
from tests.waiting import eventually

pytestmark = pytest.mark.faults

PATIENCE = 60.0


class ForwardingProcess(WorkerProcess):
    """A child that runs `tests.faults.forwarding_child`."""

    program = "tests.faults.forwarding_child"


@pytest.fixture
async def forwarders() -> AsyncIterator[Troupe[ForwardingProcess]]:
    async with troupe(ForwardingProcess) as children:
        yield children


def publish(scene: Scene, numbers: range) -> None:
    scene.execute(
        "insert into outbox (queue, payload, headers) select "
        f"'{QUEUE}', convert_to(n::text, 'UTF8'), '{{\"content-type\": \"application/json\"}}' "
        f"from generate_series({numbers[0]}, {numbers[-1]}) n"
    )


async def test_nothing_is_lost_when_the_other_broker_is_down_and_the_worker_is_killed(
    scene: Scene, forwarders: Troupe[ForwardingProcess], nats_server: NatsServer
) -> None:
    route = Route(scene.world, nats_server.url, scene.lease_seconds)
    (first,) = await forwarders.start(route)
    publish(scene, range(20))
    await eventually(lambda: scene.left() == 0, PATIENCE)

    nats_server.kill()
    publish(scene, range(20, 40))
    tried = "select count(*) from outbox where attempts_count > 0"
    await eventually(lambda: scene.ask(tried) == [(20,)], PATIENCE)
    await first.kill()
    await forwarders.start(route)
    await nats_server.start()

    await eventually(lambda: scene.left() == 0, PATIENCE)
    arrived = {int(body) for body, _ in await nats_server.stored(STREAM)}
    assert arrived == set(range(40))

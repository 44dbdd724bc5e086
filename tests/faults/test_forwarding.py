"""The other broker is killed, and then the worker that could not forward to it: everything arrives all the same."""

from collections.abc import AsyncIterator

import psycopg
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


def publish(world: str, numbers: range) -> None:
    with psycopg.connect(world, autocommit=True) as connection:
        connection.cursor().executemany(
            'insert into outbox (queue, payload, headers) values (%s, %s, \'{"content-type": "application/json"}\')',
            [(QUEUE, str(number).encode()) for number in numbers],
        )


def left(world: str, condition: str = "true") -> int:
    with psycopg.connect(world) as connection:
        ((count,),) = connection.execute(f"select count(*) from outbox where {condition}".encode()).fetchall()
    return int(count)


async def test_nothing_is_lost_when_the_other_broker_is_down_and_the_worker_is_killed(
    scene: Scene, forwarders: Troupe[ForwardingProcess], nats_server: NatsServer
) -> None:
    route = Route(scene.world, nats_server.url, scene.lease_seconds)
    (first,) = await forwarders.start(route)
    publish(scene.world, range(20))
    await eventually(lambda: left(scene.world) == 0, PATIENCE)

    nats_server.kill()
    publish(scene.world, range(20, 40))
    await eventually(lambda: left(scene.world, "attempts_count > 0") == 20, PATIENCE)
    await first.kill()
    await forwarders.start(route)
    await nats_server.start()

    await eventually(lambda: left(scene.world) == 0, PATIENCE)
    arrived = {int(body) for body, _ in await nats_server.stored(STREAM)}
    assert arrived == set(range(40))

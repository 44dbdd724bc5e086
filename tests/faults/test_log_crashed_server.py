"""PostgreSQL dies at once and comes back, in the middle of a group's reading; the group recovers by itself.

Effects in the database of the log are exactly what was committed to it; a crash is nobody's failure, and parks
nothing.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from faststream_outbox.testing.postgres import PostgresServer
from tests.faults.log_business import LogBusiness, Manner
from tests.faults.log_child import LogPart
from tests.faults.log_processes import LogTroupe
from tests.faults.log_scene import LogScene

pytestmark = pytest.mark.faults

GROUP = "billing"
CRASHES = 2
MANNER = Manner(names=40, most=3, held=0.05, longest=0.2)
PUBLISHERS = 4


@pytest.fixture
def log_scene(private_server: PostgresServer, record: str) -> Iterator[LogScene]:
    """The log in a server of its own; what plain handlers did is kept in another one."""
    with LogScene.standing(private_server.dsn(driver=""), record) as scene:
        yield scene


@pytest.mark.parametrize(
    "transactional",
    [pytest.param(True, id="transactional"), pytest.param(False, marks=pytest.mark.soak, id="plain")],
)
async def test_group_recovers_from_crashes_of_the_server(
    private_server: PostgresServer,
    log_scene: LogScene,
    log_business: LogBusiness,
    members: LogTroupe,
    seed: int,
    transactional: bool,
) -> None:
    options = {"lease_ttl_seconds": 2.0, "batch_size": 20}
    part = LogPart(log_scene.world, log_scene.record, seed, GROUP, transactional, longest=0.01, options=options)
    await members.start(*[replace(part, driver=driver) for driver in ("asyncpg", "psycopg")])
    load = asyncio.create_task(log_business.publish_with(PUBLISHERS, MANNER, 6.0))
    for _ in range(CRASHES):
        await asyncio.sleep(2.0)
        await asyncio.to_thread(private_server.crash)
        await asyncio.to_thread(private_server.restart)
    await load
    await log_scene.is_finished(GROUP, plain=not transactional)
    account = log_scene.account(GROUP, log_scene.effects() if transactional else log_scene.handled())
    print(account, f"{log_business.refused} transactions refused", sep="; ")
    assert len(members.alive) == 2
    assert log_business.refused > 0
    assert account.parked == 0
    assert account.wrongs().keys() <= (set() if transactional else {"twice"})

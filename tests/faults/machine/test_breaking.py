"""Everything that can be broken is broken for two minutes, some things at once; nothing is lost, no lease stolen."""

import asyncio

import pytest

from faststream_outbox._internal.connections.identity import worker_id_of
from tests.faults.business import Business, Habit
from tests.faults.child import EFFECTS, PLAIN, Part
from tests.faults.machine.nemesis import Nemesis
from tests.faults.machine.small_cast import WORKER, small_cast
from tests.faults.machine.world import World
from tests.faults.scene import Scene

SECONDS = 120.0


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_workers_bear_whatever_is_broken(record: str, seed: int, driver: str) -> None:
    async with World.standing(seed, standby=True, pooler=True, nats=True) as world:
        scene = Scene(world.direct, record, world.lease_seconds)
        scene.set_up()
        options = {"lease_ttl_seconds": world.lease_seconds, "max_workers": 4}
        part = Part(world.dsn, record, [PLAIN, EFFECTS], seed, driver, longest=0.05, retries=0.1, options=options)
        business = Business(Scene(world.dsn, record, world.lease_seconds), seed)
        habits = [Habit(PLAIN, pause=0.1), Habit(PLAIN, keys=5, pause=0.1), Habit(EFFECTS, pause=0.1)]
        async with small_cast(part, workers=3) as cast:
            load = [
                asyncio.create_task(business.publish_for(habit, SECONDS, name=number))
                for number, habit in enumerate(habits)
            ]
            nemesis = Nemesis(world, cast, pauses=(0.1, 1.0))
            await nemesis.run(SECONDS)
            await asyncio.gather(*load)
            # Another primary may be there by now.
            scene = Scene(world.direct, record, world.lease_seconds)
            await scene.is_finished()
            assert len(cast.of(WORKER)) == 3
        account = scene.account()
        print(account, dict(nemesis.count), nemesis.skipped, f"{business.refused} transactions refused", sep="\n")
        await business.close()
    # A frozen handler goes on beside its heir: runs may overlap. A claim whose answer was lost is taken anew.
    by_others = [
        change for change in account.stolen if worker_id_of(change.old_token) != worker_id_of(change.new_token)
    ]
    assert (account.lost, account.left, account.ghosts, account.twice, by_others) == (set(), set(), set(), set(), [])

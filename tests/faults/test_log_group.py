"""A group whose members come, go, die in the middle of a batch, and freeze for longer than their leases.

Effects in the database of the log and what was parked are together exactly what was published, in order per key. No
cursor ever moves backwards.
"""

import asyncio
import random
from itertools import cycle

import pytest

from tests.faults.log_business import LogBusiness, Manner
from tests.faults.log_child import EXITED, LogPart
from tests.faults.log_scene import LogScene
from tests.faults.processes import LogProcess, LogTroupe

pytestmark = pytest.mark.faults

GROUP = "billing"
LEASE_SECONDS = 1.5
MANNER = Manner(names=40, most=3, held=0.05, longest=0.2, pause=0.1)
PUBLISHERS = 3


class Fate:
    """What befalls the members of a group: whom, by a seed."""

    def __init__(self, members: LogTroupe, part: LogPart, seed: int) -> None:
        self._members = members
        self._part = part
        self._chance = random.Random(seed)
        self._strikes = cycle((self._kill, self._exit, self._freeze))
        self.counts = dict.fromkeys(("kill", "exit", "freeze", "leave"), 0)

    async def rage(self, rounds: int) -> None:
        """Scale between four and two members and strike in between, so many times; ends with two that live."""
        for _ in range(rounds):
            for count in (4, 2):
                await self._scale(count)
                await asyncio.sleep(self._chance.uniform(0.2, 0.8))
                await next(self._strikes)(self._chance.choice(self._members.alive))
        await self._scale(2)

    async def _scale(self, count: int) -> None:
        alive = self._members.alive
        for child in alive[count:]:
            assert await child.stop() == 0
            self.counts["leave"] += 1
        await self._members.start(*[self._part] * (count - len(alive)))

    async def _kill(self, child: LogProcess) -> None:
        await child.kill()
        self.counts["kill"] += 1

    async def _exit(self, child: LogProcess) -> None:
        assert await child.exit_in_handler() == EXITED
        self.counts["exit"] += 1

    async def _freeze(self, child: LogProcess) -> None:
        child.freeze()
        await asyncio.sleep(LEASE_SECONDS * 1.5)
        child.thaw()
        self.counts["freeze"] += 1


async def test_effects_and_parked_are_what_was_published_while_members_come_go_die_and_freeze(
    log_scene: LogScene, log_business: LogBusiness, members: LogTroupe, seed: int
) -> None:
    part = LogPart(
        log_scene.world,
        log_scene.record,
        seed,
        GROUP,
        transactional=True,
        longest=0.002,
        failures=0.03,
        poison=0.02,
        options={"lease_ttl_seconds": LEASE_SECONDS, "batch_size": 20},
    )
    fate = Fate(members, part, seed)
    load = asyncio.create_task(log_business.publish_with(PUBLISHERS, MANNER, seconds=float("inf")))
    await fate.rage(rounds=2)
    log_business.is_closing = True
    await load
    await log_scene.is_finished(GROUP)
    account = log_scene.account(GROUP, log_scene.effects())
    print(account, fate.counts, sep="; ")
    assert min(fate.counts.values()) > 0
    assert account.parked > 0
    assert log_scene.ask("select * from reversals") == []
    assert not account.wrongs()

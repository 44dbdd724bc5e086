"""A group whose members come, go, die in the middle of a batch, and freeze for longer than their leases.

Effects in the database of the log and what was parked are together exactly what was published, in order per key;
handlers without the transaction may repeat, and lose nothing. No cursor ever moves backwards.
"""

import asyncio
import random
from dataclasses import replace
from itertools import cycle

import pytest

from tests.faults.log_account import LogAccount
from tests.faults.log_business import LogBusiness, Manner
from tests.faults.log_child import EXITED, LogPart
from tests.faults.log_processes import LogProcess, LogTroupe
from tests.faults.log_scene import LogScene

pytestmark = pytest.mark.faults

GROUP = "billing"
LEASE_SECONDS = 1.5
OPTIONS = {"lease_ttl_seconds": LEASE_SECONDS, "batch_size": 20}
MANNER = Manner(names=40, most=3, held=0.05, longest=0.2, pause=0.1)
PUBLISHERS = 3


@pytest.fixture
def part(log_scene: LogScene, seed: int) -> LogPart:
    return LogPart(log_scene.world, log_scene.record, seed, GROUP, longest=0.002, options=OPTIONS)


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


async def chaos(
    scene: LogScene, log_business: LogBusiness, members: LogTroupe, part: LogPart, seed: int, *, rounds: int
) -> LogAccount:
    """Publish while the members suffer, let them finish, and draw up the account."""
    fate = Fate(members, replace(part, failures=0.03, poison=0.02), seed)
    load = asyncio.create_task(log_business.publish_with(PUBLISHERS, MANNER, seconds=float("inf")))
    await fate.rage(rounds)
    log_business.is_closing = True
    await load
    await scene.is_finished(GROUP, plain=not part.transactional)
    account = scene.account(GROUP, scene.effects() if part.transactional else scene.handled())
    print(account, fate.counts, sep="; ")
    assert min(fate.counts.values()) > 0
    assert account.parked > 0
    assert scene.ask("select * from reversals") == []
    return account


async def test_effects_and_parked_are_what_was_published_while_members_come_go_die_and_freeze(
    log_scene: LogScene, log_business: LogBusiness, members: LogTroupe, part: LogPart, seed: int
) -> None:
    part = replace(part, transactional=True)
    account = await chaos(log_scene, log_business, members, part, seed, rounds=2)
    assert not account.wrongs()


@pytest.mark.soak
async def test_handlers_without_the_transaction_lose_nothing_while_members_come_go_die_and_freeze(
    log_scene: LogScene, log_business: LogBusiness, members: LogTroupe, part: LogPart, seed: int
) -> None:
    account = await chaos(log_scene, log_business, members, part, seed, rounds=2)
    assert account.wrongs().keys() <= {"twice"}


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("transactional", [True, False], ids=["transactional", "plain"])
async def test_account_of_minutes_of_it(
    log_scene: LogScene, log_business: LogBusiness, members: LogTroupe, part: LogPart, seed: int, transactional: bool
) -> None:
    part = replace(part, transactional=transactional)
    account = await chaos(log_scene, log_business, members, part, seed, rounds=50)
    assert account.wrongs().keys() <= (set() if transactional else {"twice"})

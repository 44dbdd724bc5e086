"""Strikes at the children: killed, stopped, frozen, rolled over, made more and fewer."""

import asyncio
from random import Random

from tests.faults.machine.strikes.strike import CHILDREN, Cast, Child, NotNow, Strike, choose, linger, replace, stop
from tests.faults.machine.world import World

FROZEN_LEASES = 1.5
"""A frozen child stands still for so many leases, and a bit."""
MOST_ROLLED = 8


class Killed(Strike):
    """SIGKILL for one child, and another one in its place after a while."""

    kind = "child killed"
    takes = frozenset({CHILDREN})
    weight = 3

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        child = choose(cast, self.roles, chance)
        with world.fault(self.kind, f"{child.role} {child.pid}"):
            try:
                await child.kill()
                await linger(chance, 0.0, 1.0)
            finally:
                await replace(cast, child)


class Stopped(Strike):
    """SIGTERM for one child, which ends in its own time, and another one in its place."""

    kind = "child stopped"
    takes = frozenset({CHILDREN})
    weight = 2

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        child = choose(cast, self.roles, chance)
        with world.fault(self.kind, f"{child.role} {child.pid}"):
            try:
                await stop(world, child)
                await linger(chance, 0.0, 1.0)
            finally:
                await replace(cast, child)


class Frozen(Strike):
    """SIGSTOP for one child for longer than its leases last, then SIGCONT."""

    kind = "child frozen"
    takes = frozenset({CHILDREN})
    weight = 2

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        child = choose(cast, self.roles, chance)
        seconds = world.lease_seconds * FROZEN_LEASES + chance.uniform(0.0, 1.0)
        with world.fault(self.kind, f"{child.role} {child.pid} for {seconds:.1f} s"):
            child.freeze()
            try:
                await asyncio.sleep(seconds)
            finally:
                if child.is_alive:
                    child.thaw()


class Rolled(Strike):
    """A deployment: all children of a role are stopped and replaced, one after another."""

    kind = "role rolled"
    takes = frozenset({CHILDREN})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        role = choose(cast, self.roles, chance).role
        children = [child for child in cast.of(role) if child.is_alive][:MOST_ROLLED]
        with world.fault(self.kind, f"{len(children)} of {role}"):
            for child in children:
                try:
                    await stop(world, child)
                finally:
                    await replace(cast, child)


class Grown(Strike):
    """Some more children of a role for a while, which are stopped again."""

    kind = "members added"
    takes = frozenset({CHILDREN})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        role = choose(cast, self.roles, chance).role
        number = chance.randint(1, 2)
        added: list[Child] = []
        with world.fault(self.kind, f"{number} of {role}"):
            try:
                for _ in range(number):
                    added.append(await cast.start(role))
                await linger(chance, 1.0, 4.0)
            finally:
                await asyncio.gather(*(stop(world, child) for child in added))


class Shrunk(Strike):
    """All children of a role but one are stopped for a while."""

    kind = "members removed"
    takes = frozenset({CHILDREN})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        role = choose(cast, self.roles, chance).role
        leaving = [child for child in cast.of(role) if child.is_alive][1:]
        if not leaving:
            raise NotNow(f"there is only one {role}")
        with world.fault(self.kind, f"{len(leaving)} of {role}"):
            try:
                await asyncio.gather(*(stop(world, child) for child in leaving))
                await linger(chance, 1.0, 4.0)
            finally:
                for child in leaving:
                    await replace(cast, child)

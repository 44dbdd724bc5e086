"""Strikes at whole servers: PostgreSQL restarted, crashed and failed over; PgBouncer and NATS restarted."""

import asyncio
import contextlib
import os
import signal
from random import Random

import psycopg

from tests.faults.machine.pair import APPLICATION, Ending
from tests.faults.machine.strikes.strike import NATS, POOLER, PRIMARY, Cast, NotHere, NotNow, Strike, linger
from tests.faults.machine.world import World

RECOVERY_SECONDS = 30.0


class PostgresRestarted(Strike):
    """The primary ends and is started again."""

    takes = frozenset({PRIMARY})

    def __init__(self, how: Ending, *, weight: int | None = None) -> None:
        super().__init__(weight=weight)
        self.kind = f"PostgreSQL restarted ({how})"
        self._how: Ending = how

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        down = chance.choice((0.0, chance.uniform(0.0, 3.0)))
        with world.fault(self.kind, f"down for {down:.1f} s"):
            await world.restart(self._how, down)


class BackendKilled(Strike):
    """SIGKILL for one backend: PostgreSQL ends all sessions and recovers by itself, without a restart."""

    kind = "PostgreSQL backend killed"
    takes = frozenset({PRIMARY})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        if os.geteuid() != 0:
            raise NotHere("only root may kill processes of the server's account")
        question = "select pid from pg_stat_activity where usename = %s order by pid"
        pids = [pid for (pid,) in await world.ask(question, APPLICATION)]
        if not pids:
            raise NotNow("nobody is connected")
        pid = chance.choice(pids)
        with world.fault(self.kind, str(pid)):
            os.kill(pid, signal.SIGKILL)
            async with asyncio.timeout(RECOVERY_SECONDS):
                await self._recovers(world, pid)
            await asyncio.to_thread(world.pair.is_followed)

    @staticmethod
    async def _recovers(world: World, pid: int) -> None:
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                if not await world.ask("select 1 from pg_stat_activity where pid = %s", pid):
                    return
            await asyncio.sleep(0.02)


class FailedOver(Strike):
    """The primary is gone for good, and the standby takes its place."""

    kind = "failover"
    takes = frozenset({PRIMARY})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        if world.pair.standby is None:
            raise NotHere("no standby in this world")
        how: Ending = chance.choice(("fast", "immediate"))
        with world.fault(self.kind, f"the old primary ended {how}"):
            await world.fail_over(how)


class PoolerRestarted(Strike):
    """PgBouncer ends with everybody connected to it, and is started again."""

    kind = "PgBouncer restarted"
    takes = frozenset({POOLER})
    shares = frozenset({PRIMARY})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        if world.pooler is None:
            raise NotHere("no PgBouncer in this world")
        down = chance.uniform(0.0, 2.0)
        with world.fault(self.kind, f"down for {down:.1f} s"):
            await world.restart_pooler(down)


class NatsRestarted(Strike):
    """NATS is killed, and started again after a while."""

    kind = "NATS restarted"
    takes = frozenset({NATS})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        if world.nats_server is None:
            raise NotHere("no NATS in this world")
        with world.fault(self.kind, "killed"):
            await world.stop_nats()
            try:
                await linger(chance, 0.0, 3.0)
            finally:
                await world.start_nats()

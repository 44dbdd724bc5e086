"""Strikes by strangers that keep an old snapshot: nothing that dies meanwhile can be vacuumed, no gap be closed."""

import asyncio
import contextlib
from random import Random

import psycopg

from tests.faults.machine.strikes.strike import PRIMARY, Cast, Strike, linger, session
from tests.faults.machine.world import World

PREPARED = "strike_prepared"
ROLLBACK_SECONDS = 30.0


class SnapshotHeld(Strike):
    """A transaction that is idle, with a snapshot and a transaction number."""

    kind = "old snapshot held"
    shares = frozenset({PRIMARY})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        with world.fault(self.kind, "idle in transaction"):
            async with session(world.superuser) as stranger:
                with contextlib.suppress(psycopg.OperationalError):
                    await stranger.execute("begin isolation level repeatable read")
                    await stranger.execute("select pg_current_xact_id()")
                    await linger(chance, 2.0, 8.0)
                    await stranger.execute("rollback")


class PreparedHeld(Strike):
    """A prepared transaction that nobody finishes for a while; it belongs to no session."""

    kind = "prepared transaction held"
    takes = frozenset({"prepared"})
    shares = frozenset({PRIMARY})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        with world.fault(self.kind, PREPARED):
            try:
                async with session(world.superuser) as stranger:
                    await stranger.execute("begin")
                    await stranger.execute("select pg_current_xact_id()")
                    await stranger.execute(f"prepare transaction '{PREPARED}'".encode())
                await linger(chance, 2.0, 8.0)
            finally:
                async with asyncio.timeout(ROLLBACK_SECONDS):
                    await self._roll_back(world)

    @staticmethod
    async def _roll_back(world: World) -> None:
        while True:
            with contextlib.suppress(psycopg.OperationalError):
                if await world.ask("select 1 from pg_prepared_xacts where gid = %s", PREPARED):
                    await world.ask(f"rollback prepared '{PREPARED}'")
                return
            await asyncio.sleep(0.1)

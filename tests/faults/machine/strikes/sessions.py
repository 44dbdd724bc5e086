"""Strikes at sessions of PostgreSQL: ended from outside, and none left for those who want one."""

import asyncio
import contextlib
from random import Random
from typing import Any

import psycopg

from faststream_outbox._internal.connections.identity import parse_name
from tests.faults.machine.pair import APPLICATION
from tests.faults.machine.strikes.strike import PRIMARY, Cast, NotNow, Strike, linger
from tests.faults.machine.world import World

_TERMINATE = "select pg_terminate_backend(pid) from pg_stat_activity where pid = any(%s)"


async def sessions(world: World) -> dict[int, str]:
    """Backends of what is under test, and what each says that it is for; "" is the application's own."""
    rows = await world.ask("select pid, application_name from pg_stat_activity where usename = %s", APPLICATION)
    names = {pid: parse_name(name) for pid, name in rows}
    return {pid: "" if name is None else name.role for pid, name in names.items()}


class Terminated(Strike):
    """`pg_terminate_backend` for every session, or for those of one purpose.

    purpose: what a connection of the package says that it is for (`listen`, `claim`, …); "one" draws a purpose of
        those that there are, and "all" is everything, the application's own sessions too.
    """

    takes = frozenset({PRIMARY})

    def __init__(self, purpose: str, *, weight: int | None = None) -> None:
        super().__init__(weight=weight)
        self.kind = f"sessions ended ({purpose})"
        self._purpose = purpose

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        there = await sessions(world)
        purposes = sorted(set(there.values()) - {""})
        if self._purpose == "one" and purposes:
            purposes = [chance.choice(purposes)]
        elif self._purpose not in ("one", "all"):
            purposes = [self._purpose]
        ended = [pid for pid, purpose in there.items() if self._purpose == "all" or purpose in purposes]
        if not ended:
            raise NotNow(f"no session for {self._purpose}")
        with world.fault(self.kind, f"{len(ended)} sessions: {', '.join(purposes)}"):
            await world.ask(_TERMINATE, ended)


class ConnectionsFilled(Strike):
    """Strangers take every connection that is free, for seconds; those that there were are ended first or stay."""

    kind = "connections used up"
    takes = frozenset({PRIMARY})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        first = chance.random() < 0.5
        strangers: list[psycopg.AsyncConnection[Any]] = []
        detail = "after all sessions were ended" if first else "beside those that there were"
        with world.fault(self.kind, detail):
            try:
                if first:
                    await world.ask(_TERMINATE, list(await sessions(world)))
                await self._fill(world, strangers)
                # Whoever had one and lets it go must not find it again.
                for _ in range(chance.randint(10, 30)):
                    await asyncio.sleep(0.1)
                    await self._fill(world, strangers)
            finally:
                for stranger in strangers:
                    with contextlib.suppress(psycopg.Error):
                        await stranger.close()
        await linger(chance, 0.0, 0.5)

    @staticmethod
    async def _fill(world: World, strangers: list[psycopg.AsyncConnection[Any]]) -> None:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                strangers.append(await psycopg.AsyncConnection.connect(world.direct, application_name="stranger"))

"""Strikes by strangers that hold locks on the package's tables: rows, and whole tables."""

import contextlib
from random import Random

import psycopg

from tests.faults.machine.strikes.strike import PRIMARY, TABLE, Cast, NotHere, Strike, linger, session
from tests.faults.machine.world import OUTBOX, World

LOCK_TIMEOUT = "set lock_timeout = '10s'"
"""Who does not get a lock in this time does without: everybody waits behind it."""


class RowsLocked(Strike):
    """A stranger locks rows of the outbox and thinks about it."""

    kind = "rows locked"
    shares = frozenset({PRIMARY, TABLE})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        if not await world.has(OUTBOX):
            raise NotHere(f"no table {OUTBOX}")
        most = chance.choice((1, 10, 1000))
        async with session(world.superuser) as stranger:
            await stranger.execute("begin")
            locking = f"select id from {OUTBOX} order by id limit {most} for update skip locked"
            rows = await (await stranger.execute(locking.encode())).fetchall()
            with world.fault(self.kind, f"{len(rows)} rows", rows=[number for (number,) in rows]):
                await linger(chance, 0.5, 3.0)
                with contextlib.suppress(psycopg.OperationalError):
                    await stranger.execute("rollback")


class TableLocked(Strike):
    """A stranger locks a whole table, as a migration or a dump does."""

    takes = frozenset({TABLE})
    shares = frozenset({PRIMARY})

    def __init__(self, mode: str, *, weight: int | None = None) -> None:
        super().__init__(weight=weight)
        self.kind = f"table locked ({mode})"
        self._mode = mode

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        tables = await world.tables()
        if not tables:
            raise NotHere("no tables")
        table = chance.choice(tables)
        with world.fault(self.kind, table):
            async with session(world.superuser) as stranger:
                with contextlib.suppress(psycopg.OperationalError):
                    await stranger.execute(LOCK_TIMEOUT)
                    await stranger.execute("begin")
                    await stranger.execute(f"lock table {table} in {self._mode} mode".encode())
                    await linger(chance, 0.5, 3.0)
                    await stranger.execute("rollback")

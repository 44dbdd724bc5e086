"""Strikes by an operator who looks after the tables while they are used."""

import contextlib
from random import Random

import psycopg

from tests.faults.machine.strikes.locks import LOCK_TIMEOUT
from tests.faults.machine.strikes.strike import PRIMARY, TABLE, Cast, NotHere, Strike, session
from tests.faults.machine.world import World

STATEMENT_TIMEOUT = "set statement_timeout = '20s'"

_INVALID = (
    "select indexrelid::regclass::text from pg_index where not indisvalid and indexrelid::regclass::text ~ '_ccnew'"
)


class Upkeep(Strike):
    """VACUUM FULL, REINDEX CONCURRENTLY or ANALYZE of one table.

    command: what stands before the table's name.
    """

    takes = frozenset({TABLE})
    shares = frozenset({PRIMARY})

    def __init__(self, command: str, *, weight: int | None = None) -> None:
        super().__init__(weight=weight)
        self.kind = command
        self._command = command

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        tables = await world.tables()
        if not tables:
            raise NotHere("no tables")
        table = chance.choice(tables)
        with world.fault(self.kind, table):
            try:
                async with session(world.superuser) as operator:
                    # What takes too long beside an old snapshot is given up, as an operator would.
                    with contextlib.suppress(psycopg.OperationalError):
                        await operator.execute(LOCK_TIMEOUT)
                        await operator.execute(STATEMENT_TIMEOUT)
                        await operator.execute(f"{self._command} {table}".encode())
            finally:
                await self._drop_leftovers(world)

    @staticmethod
    async def _drop_leftovers(world: World) -> None:
        """An index that was given up stays behind, and costs every write."""
        for (name,) in await world.ask(_INVALID):
            await world.ask(f"drop index if exists {name}")

"""Strikes by an operator who moves a group and replays dead letters while everything runs.

Both mean that messages are handled again on purpose. They concern one group and one queue that nobody else uses, so
that whoever checks a history knows where a second delivery is right: `SOUGHT_GROUP` and `REVIVED_QUEUE`. The detail
in the history names them.
"""

import contextlib
from random import Random

from sqlalchemy import MetaData
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import make_dlq_table, make_outbox_table
from faststream_outbox.errors import ConnectionUnusable, UnknownName
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.queue import OutboxClient
from faststream_outbox.queue.admin.dead_letters import DeadLetters, Selection
from tests.faults.machine.strikes.strike import PRIMARY, Cast, NotHere, NotNow, Strike
from tests.faults.machine.world import DEAD_LETTERS, LOG, OUTBOX, World

SOUGHT_GROUP = "sought"
"""A group that is put elsewhere: it reads messages again, or never."""
REVIVED_QUEUE = "revived"
"""A queue whose dead letters are replayed."""


class Sought(Strike):
    """A group that is read is put to the beginning or to the end of the log."""

    kind = "group sought"
    shares = frozenset({PRIMARY})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        if not await world.has(LOG):
            raise NotHere(f"no table {LOG}")
        place = chance.choice(("earliest", "latest"))
        tables = make_log_tables(MetaData(), LOG)
        engine = _engine(world)
        with world.fault(self.kind, f"group={SOUGHT_GROUP} to={place}"):
            try:
                async with Outbox(engine, tables=tables, listen=False) as log, engine.begin() as connection:
                    await log.seek(connection, place, SOUGHT_GROUP)
            except UnknownName as error:
                raise NotNow(f"no group {SOUGHT_GROUP}") from error
            finally:
                await engine.dispose()


class Revived(Strike):
    """The dead letters of one queue go back to it."""

    kind = "dead letters replayed"
    shares = frozenset({PRIMARY})

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        if not await world.has(DEAD_LETTERS):
            raise NotHere(f"no table {DEAD_LETTERS}")
        metadata = MetaData()
        table, dead = make_outbox_table(metadata, OUTBOX), make_dlq_table(metadata, DEAD_LETTERS)
        engine = _engine(world)
        with world.fault(self.kind, f"queue={REVIVED_QUEUE}"):
            client = OutboxClient(engine, table, dlq_table=dead, log=None)
            try:
                # What was moved when the line broke stays moved, and what was not stays dead.
                with contextlib.suppress(DBAPIError, ConnectionUnusable):
                    size = chance.choice((1, 10, 500))
                    await DeadLetters(client).replay(Selection(queue=REVIVED_QUEUE), slice_size=size)
            finally:
                await client.wakeups.close()
                await engine.dispose()


def _engine(world: World) -> AsyncEngine:
    return create_async_engine(world.direct.replace("postgresql://", "postgresql+asyncpg://"))

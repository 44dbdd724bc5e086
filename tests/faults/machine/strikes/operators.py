"""Strikes by an operator who moves a group and replays dead letters while everything runs.

Both mean that messages are handled again on purpose. They concern one group and one queue that nobody else uses, so
that whoever checks a history knows where a second delivery is right: `SOUGHT_GROUP` and `REVIVED`. The detail in the
history names them. Where there is a table for seeks, each is written down in its own transaction.
"""

import contextlib
from random import Random

from sqlalchemy import MetaData, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from faststream_outbox import make_dlq_table, make_outbox_table
from faststream_outbox._internal.queue.dead_letters import DeadLetters, Selection
from faststream_outbox.errors import ConnectionUnusable, InvalidOption
from faststream_outbox.log import Outbox, make_log_tables
from faststream_outbox.queue import OutboxClient
from tests.faults.machine.stage import REVIVED, SOUGHT_GROUP
from tests.faults.machine.strikes.strike import PRIMARY, Cast, NotHere, NotNow, Strike
from tests.faults.machine.world import DEAD_LETTERS, LOG, OUTBOX, World

SEEKS = "seeks"
MOST_AGAIN = 2_000
"""A longer log is not read again from its beginning, but so many messages: a run of an hour has to end."""
BACK, LATEST = "back", "latest"

_URI = f"select uri from {LOG}_offsets where consumer_group = %s limit 1"
_BACK = f"select event_id from {LOG} order by position desc offset %s limit 1"
_NOTE = text(f"insert into {SEEKS} (tick, position) values (:tick, :position)")


class Sought(Strike):
    """A group that is read is put back, to the beginning of a log that is not too long, or to its end."""

    kind = "group sought"
    shares = frozenset({PRIMARY})
    weight = 3

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        if not await world.has(LOG):
            raise NotHere(f"no table {LOG}")
        place = chance.choice((BACK, LATEST))
        known = await world.ask(_URI, SOUGHT_GROUP)
        if not known:
            raise NotNow(f"no group {SOUGHT_GROUP}")
        if place == BACK:
            older = await world.ask(_BACK, MOST_AGAIN)
            place = str(older[0][0]) if older else "earliest"
        tables = make_log_tables(MetaData(), LOG)
        engine = _engine(world)
        is_noted = await world.has(SEEKS)
        with world.fault(self.kind, f"group={SOUGHT_GROUP} to={place}"):
            try:
                async with Outbox(engine, tables=tables, listen=False) as log, engine.begin() as connection:
                    cursor = await log.seek(connection, place, SOUGHT_GROUP, known[0][0])
                    if is_noted:
                        await connection.execute(_NOTE, cursor._asdict())
            except (InvalidOption, DBAPIError, ConnectionUnusable) as error:
                # Its position is not in the log's order yet, or the line broke.
                raise NotNow(str(error)) from error
            finally:
                await engine.dispose()


class Revived(Strike):
    """The dead letters of one queue go back to it."""

    kind = "dead letters replayed"
    shares = frozenset({PRIMARY})
    weight = 3

    async def strike(self, world: World, cast: Cast, chance: Random) -> None:
        if not await world.has(DEAD_LETTERS):
            raise NotHere(f"no table {DEAD_LETTERS}")
        metadata = MetaData()
        table, dead = make_outbox_table(metadata, OUTBOX), make_dlq_table(metadata, DEAD_LETTERS)
        engine = _engine(world)
        with world.fault(self.kind, f"queue={REVIVED}"):
            client = OutboxClient(engine, table, dlq_table=dead, log=None)
            try:
                # What was moved when the line broke stays moved, and what was not stays dead.
                with contextlib.suppress(DBAPIError, ConnectionUnusable):
                    size = chance.choice((1, 10, 500))
                    await DeadLetters(client).replay(Selection(queue=REVIVED), slice_size=size)
            finally:
                await client.wakeups.close()
                await engine.dispose()


def _engine(world: World) -> AsyncEngine:
    # Connections are kept for a superuser, and another strike may have filled all others.
    return create_async_engine(world.superuser.replace("postgresql://", "postgresql+asyncpg://"))

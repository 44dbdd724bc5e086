"""A tick whose statements are sent one by one, so that a test can act between them, or send others instead."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from faststream_outbox._internal.log.ordering import sequencer
from faststream_outbox._internal.sql.statements import Statement, statements
from tests.log.rig import LogRig


def statement(rig: LogRig, name: str = "tick", **changes: str) -> Statement:
    """A statement of the sequencer on asyncpg, with parts of its text replaced: `part_1="…", by_1="…"`."""
    found = statements("tick", rig.outbox.client.names)[name]
    text = found.dollar
    for key, part in changes.items():
        if key.startswith("part"):
            assert part in text, f"the statement has changed: {part}"
            text = text.replace(part, changes[key.replace("part", "by")])
    return replace(found, dollar=text)


async def values(rig: LogRig) -> dict[str, Any]:
    """What the sequencer gives to the statement."""
    place = await rig.outbox.client.sequencer._where()
    return {
        "limit": sequencer.TICK_LIMIT,
        "islands": sequencer.ISLAND_LIMIT,
        "ranges": sequencer.RANGE_LIMIT,
        "sweep": sequencer.SWEEP_LIMIT,
        "channel": "nobody",
        "place": place,
    }


class TickByHand:
    """A transaction of the sequencer's."""

    def __init__(self, rig: LogRig, connection: AsyncConnection, scan: Statement) -> None:
        self._rig = rig
        self._connection = connection
        self._scan = scan

    async def lock(self) -> None:
        """Begin, with an xid from now on."""
        lock = statement(self._rig, "lock_head")
        await self._connection.exec_driver_sql(lock.dollar, lock.arguments({}))
        await self._connection.exec_driver_sql("select pg_current_xact_id()")

    async def send(self, other: Statement) -> None:
        """Another statement of the sequencer's, without values."""
        await self._connection.exec_driver_sql(other.dollar)

    async def scan(self) -> None:
        """Look for what is visible, and write the tick."""
        arguments = self._scan.arguments(await values(self._rig))
        await self._connection.exec_driver_sql(self._scan.dollar, arguments)

    async def end(self) -> None:
        """Commit."""
        await self._connection.commit()

    async def __call__(self) -> None:
        """All of it."""
        await self.lock()
        await self.scan()
        await self.end()


@asynccontextmanager
async def ticking(rig: LogRig, scan: Statement | None = None) -> AsyncGenerator[TickByHand, None]:
    """A ticker that is driven by hand, with the true statement or another; the first look makes the log's head."""
    await rig.outbox.client.sequencer.progress()
    async with rig.engine.connect() as connection:
        yield TickByHand(rig, connection, scan or statement(rig))

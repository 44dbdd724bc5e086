"""Where groups stand, and how to change that: the half of `Outbox` that operators and tests use.

Positions, seeking, waiting, lag, gaps and retention. Whatever changes a group's place happens in the
caller's transaction.
"""

import asyncio
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.caller import AnySession
from faststream_outbox._internal.connections.cause import REFUSED, sqlstate_of
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.log.admin.groups import CREATE, check_known, near_miss
from faststream_outbox._internal.log.admin.partitions import Partitions
from faststream_outbox._internal.log.admin.positions import Lag, Place, Positions, SlotLag, lags, lags_by_slot
from faststream_outbox._internal.log.admin.retention import Cleaned, clean
from faststream_outbox._internal.log.append import Token
from faststream_outbox._internal.log.sharing.slots import Cursor, Group, checked_filter, checked_group
from faststream_outbox._internal.options import check_seconds
from faststream_outbox._internal.schema.log_tables import LogTables
from faststream_outbox._internal.sql.statements import column, statements
from faststream_outbox.errors import InvalidOptionType, OutboxWarning

if TYPE_CHECKING:
    from faststream_outbox._internal.log.client import LogClient


def group_of(name: str, uri: str) -> Group:
    """The group of this name that reads this URI."""
    return Group(checked_group(name), checked_filter(uri))


def check_token(token: object) -> None:
    """Refuse what `publish` did not give."""
    if not isinstance(token, Token):
        msg = f"token must be what publish returned, a Token, not a {type(token).__name__}."
        raise InvalidOptionType(msg)


class GroupAdmin:
    """Places of groups in one log."""

    engine: AsyncEngine
    tables: LogTables
    client: "LogClient"
    _may_sequence: bool = True

    @property
    def events(self) -> Events:
        """What happens, for whoever listens."""
        return self.client.events

    async def get_position(self, session: AnySession, consumer_group: str = "", uri: str = "") -> tuple[int, int]:
        """Transaction and offset of the last message before which the group has handled everything.

        session: whose transaction it belongs to: an AsyncSession or AsyncConnection, or a driver's connection.
        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        return await (await Positions.caller_connection(self.tables, session)).get(group_of(consumer_group, uri))

    async def set_position(
        self,
        session: AnySession,
        consumer_group: str = "",
        uri: str = "",
        transaction_id: int = 0,
        offset: int = 0,
    ) -> None:
        """Put a group behind the message at `offset`; with neither, at the beginning.

        session: whose transaction it belongs to: an AsyncSession or AsyncConnection, or a driver's connection.
        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        transaction_id: the first of what get_position gave; decides only where the message at `offset` is gone.
        offset: the second: the position of the last message that is behind the group.
        """
        group = group_of(consumer_group, uri)
        positions = await Positions.caller_connection(self.tables, session)
        meant = await near_miss(positions.fetch, group.name, group.uri, self.client.groups)
        if meant is not None:
            msg = f"No group {group.name!r} was known, and now there is one; {meant!r} was there already."
            warnings.warn(msg, OutboxWarning, stacklevel=2)
        await positions.set(group, transaction_id, offset)

    async def get_cursor(self, session: AnySession, consumer_group: str = "", uri: str = "") -> Cursor:
        """The group's place in the log's own order.

        session: whose transaction it belongs to: an AsyncSession or AsyncConnection, or a driver's connection.
        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        group = group_of(consumer_group, uri)
        positions = await Positions.caller_connection(self.tables, session)
        await check_known(positions.fetch, group.name, group.uri, self.client.groups)
        return await positions.cursor(group)

    async def seek(
        self, session: AnySession, place: Place, consumer_group: str = "", uri: str = "", *, create: bool = False
    ) -> Cursor:
        """Put a group to "earliest", "latest", a time, a cursor, or before the message with an event_id.

        session: whose transaction it belongs to: an AsyncSession or AsyncConnection, or a driver's connection.
        place: "earliest", "latest", an aware datetime, a Cursor, or an event_id, which is then the next.
        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        create: make the group if nobody has heard of it, instead of raising `UnknownName`.
        """
        group = group_of(consumer_group, uri)
        positions = await Positions.caller_connection(self.tables, session)
        if not create:
            await check_known(positions.fetch, group.name, group.uri, self.client.groups, CREATE)
        if place == "latest":
            await self.client.sequencer.catch_up()
        await positions.lock(group)
        cursor = await positions.find(place)
        await positions.put(group, cursor)
        return cursor

    async def wait_until_caught_up(
        self, token: Token, consumer_group: str = "", uri: str = "", *, timeout: float | None = 30.0
    ) -> None:
        """Wait until a group has handled, or parked, what was published under the token and committed.

        token: what publish returned; its transaction is committed.
        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        timeout: seconds until TimeoutError; None waits for ever.
        """
        check_token(token)
        if timeout is not None:
            check_seconds("timeout", timeout, zero=True)
        values = {**group_of(consumer_group, uri).values, "positions": list(token.positions)}
        sql = statements("position", self.client.names)["unread"]
        pause = 0.002
        async with asyncio.timeout(timeout):
            while column(await self.client.operator_connection.fetch(sql, values)) != [0]:
                await asyncio.sleep(pause)
                pause = min(0.1, pause * 1.5)

    async def lag(self, consumer_group: str | None = None, uri: str | None = None) -> list[Lag]:
        """Messages and seconds that each span of slots is behind, of one group or of all.

        consumer_group: the group's name; None is all groups.
        uri: what the group reads; None is whatever it reads.
        """
        if uri is not None:
            checked_filter(uri)
        if consumer_group is not None:
            checked_group(consumer_group)
            await check_known(self.client.ask, consumer_group, uri, self.client.groups)
        await self._catch_up_if_allowed()
        return await lags(self.client.operator_connection, self.client.names, consumer_group, uri)

    async def lag_by_slot(self, consumer_group: str, uri: str = "") -> dict[int, SlotLag]:
        """Messages and seconds that each slot of a group is behind, where it is.

        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        group = group_of(consumer_group, uri)
        await check_known(self.client.ask, group.name, group.uri, self.client.groups)
        await self._catch_up_if_allowed()
        return await lags_by_slot(self.client.operator_connection, self.client.names, group)

    async def _catch_up_if_allowed(self) -> None:
        """Sequence what is visible; whoever may only read sees what others have sequenced."""
        if self._may_sequence:
            try:
                await self.client.sequencer.catch_up()
            except Exception as error:
                if sqlstate_of(error) != REFUSED:
                    raise
                self._may_sequence = False

    async def open_gaps(self, age: float = 1.0) -> list[dict[str, Any]]:
        """Numbers that are drawn and not visible for so many seconds, with the sessions that may own them.

        age: seconds that they are open at least.
        """
        return await self.client.sequencer.old_gaps(age)

    async def clean(
        self, *, older_than: timedelta = timedelta(days=7), group_expires_after: timedelta = timedelta(days=30)
    ) -> Cleaned:
        """Delete what is older and read by every group that was heard of in that time.

        older_than: how long messages stay at least.
        group_expires_after: a group that was not heard of for so long holds nothing back any more.
        """
        return await clean(
            self.client.operator_connection,
            self.client.names,
            self.events,
            older_than=older_than,
            group_expires_after=group_expires_after,
            partitions=Partitions(self.engine, self.tables, 1) if self.tables.is_partitioned else None,
        )

    def partitions(self, size: int = 1_000_000) -> Partitions:
        """The parts of a log that was described with `partitioned=True`, each of so many positions.

        size: positions of each part; keep it.
        """
        return Partitions(self.engine, self.tables, size)

"""Where a group stands, and how to put it elsewhere: positions, seeking, lag.

A position is (tick, position): bigint only, the same for every group, through dumps and restores. Changes
happen in the caller's transaction; whoever was reading loses its leases with it and starts at the new
place. Used by `Outbox`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from faststream_outbox.errors import InvalidOption, InvalidOptionType
from faststream_outbox.log.holding import Group
from faststream_outbox.log.message import unique_id
from faststream_outbox.log.spans import BEGINNING, Cursor
from faststream_outbox.schema.log_tables import LogNames, LogTables
from faststream_outbox.sql import statements
from faststream_outbox.sql.through import AnySession, Through, through
from faststream_outbox.sql.wire import Wire

Place = Cursor | datetime | str | UUID
"""`Cursor(tick, position)`, an aware time, "earliest", "latest", or the event_id of a message."""


@dataclass(frozen=True, slots=True)
class Lag:
    """What a span of slots has not read yet."""

    group: str
    uri: str
    slots: tuple[int, int]
    cursor: Cursor
    owner: UUID | None
    """Who reads it now; None where nobody does, also because whoever did has died."""
    leased_until: datetime | None
    updated_at: datetime
    messages: int
    seconds: float


class Positions:
    """Positions of the groups of one log, seen through a session."""

    def __init__(self, tables: LogTables, opened: Through) -> None:
        self._names = LogNames.of(tables, opened.schema_map)
        self._sql = statements("position", self._names)
        self._opened = opened

    @classmethod
    async def through(cls, tables: LogTables, session: AnySession) -> "Positions":
        """Positions in a session's transaction."""
        return cls(tables, await through(session, tables.log))

    async def fetch(self, name: str, values: dict[str, Any]) -> Sequence[Any]:
        """Run one of the statements about positions in the session's transaction."""
        return await self._opened.fetch(self._sql[name], values)

    async def get(self, group: Group) -> tuple[int, int]:
        """Transaction and position of the last message before which everything is handled."""
        rows = await self.fetch("low_water", group.values)
        return (rows[0][3], rows[0][2]) if rows else (0, 0)

    async def cursor(self, group: Group) -> Cursor:
        """The place before which everything is handled or set aside."""
        rows = await self.fetch("low_water", group.values)
        return Cursor(rows[0][0], rows[0][1]) if rows else BEGINNING

    async def set(self, group: Group, transaction_id: int, offset: int) -> None:
        """Put the group behind the message at `offset`, or else before the first one behind that pair."""
        given: tuple[tuple[str, object], ...] = (("transaction_id", transaction_id), ("offset", offset))
        for name, value in given:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
                msg = f"{name} must be an int from 0 to 2**63 - 1, not {value!r}."
                raise InvalidOption(msg)
        await self.lock(group)
        place = BEGINNING
        if offset or transaction_id:
            known = await self.fetch("place_of", {"position": offset})
            if known:
                place = Cursor(known[0][0], offset)
            else:
                pair = {"transaction_id": transaction_id, "offset": offset}
                rows = await self.fetch("place_of_pair", pair) or await self.fetch("last_place", {})
                place = Cursor(*rows[0]) if rows else BEGINNING
        await self.put(group, place)

    async def lock(self, group: Group) -> None:
        """Keep the group's spans, and the messages that they may be put before, as they are until the commit.

        Comes before a place is looked for: retention may delete it as long as this has not returned.
        """
        await self.fetch("lock_group", group.values)

    async def put(self, group: Group, place: Cursor) -> None:
        """Put the group, which is locked, to a place."""
        values = {**group.values, "tick": place.tick, "position": place.position, "channel": self._names.channel}
        # One statement each: the second sees every span that was cut before the group was locked, and the third
        # what was put aside by a settle that the second waited for.
        await self.fetch("lock_spans", group.values)
        await self.fetch("seek", values)

    async def find(self, place: Place) -> Cursor:
        """The cursor from which reading begins at a place."""
        if isinstance(place, tuple):
            return Cursor(*place)
        if isinstance(place, datetime):
            if place.utcoffset() is None:
                msg = f"Seek to an aware time, e.g. datetime.now(UTC): {place!r} is naive."
                raise InvalidOption(msg)
            rows = await self.fetch("place_before", {"moment": place})
            return Cursor(*rows[0]) if rows else BEGINNING
        if place == "earliest":
            return BEGINNING
        if place == "latest":
            rows = await self.fetch("last_place", {})
            return Cursor(*rows[0]) if rows else BEGINNING
        other: object = place
        if isinstance(other, UUID | str):
            return await self._before(unique_id(other), other)
        msg = f"Seek to 'earliest', 'latest', a time, a Cursor or an event_id, not to {place!r}."
        raise InvalidOptionType(msg)

    async def _before(self, event_id: UUID | None, given: object) -> Cursor:
        rows = await self.fetch("position_of_event", {"event_id": None if event_id is None else str(event_id)})
        places = await self.fetch("place_of", {"position": rows[0][0]}) if rows else []
        if not places:
            msg = f"No message with event_id {given} is in the log's order, or not yet, or not any more."
            raise InvalidOption(msg)
        # Just before it: the message itself is the first to be read.
        return Cursor(places[0][0], rows[0][0] - 1)


async def lags(wire: Wire, names: LogNames, group: str | None, uri: str | None) -> list[Lag]:
    """What every span of a group, or of all groups, has not read yet."""
    rows = await wire.fetch(statements("position", names)["lag"], {"group": group, "uri": uri})
    return [
        Lag(row[0], row[1], (row[2], row[3]), Cursor(row[4], row[5]), row[6], row[7], row[8], row[9], row[10])
        for row in rows
    ]


async def lags_by_slot(wire: Wire, names: LogNames, group: Group) -> dict[int, tuple[int, float]]:
    """Messages and seconds that each slot of a group is behind; slots that have read everything are left out."""
    rows = await wire.fetch(statements("position", names)["lag_by_slot"], group.values)
    return {row[0]: (row[1], row[2]) for row in rows}

"""Where a group stands, how much it has not read yet, and how to put it elsewhere.

A position is (tick, position): bigint only, the same for every group, through dumps and restores. Changes happen in the
caller's transaction; whoever was reading loses its leases with it and starts at the new place.

Lag is counted up to a bound, in messages and in seconds, and estimated beyond it from what was counted: a question must
not cost what the answer is large. What is unread is counted exactly where it is little, and also where it is much, if a
span has every slot and no filter and the ticks in between are not too many. Anything else is marked as an estimate.

Used by `Outbox`, by `groups` and by whoever shows how a group stands.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from faststream_outbox._internal.connections.caller import AnySession, CallerConnection, caller_connection
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.message import unique_id
from faststream_outbox._internal.log.sharing.calls import changed
from faststream_outbox._internal.log.sharing.slots import BEGINNING, Cursor, Group
from faststream_outbox._internal.options import BIGINT
from faststream_outbox._internal.schema.log_tables import LogNames, LogTables
from faststream_outbox._internal.sql.log_admin_rows import LagRow, LowWater, TickGuess
from faststream_outbox._internal.sql.statements import column, named, statements
from faststream_outbox.errors import InvalidOption, InvalidOptionType

Place = Cursor | datetime | str | UUID
"""`Cursor(tick, position)`, an aware time, "earliest", "latest", or the event_id of a message."""
NEAR = 64
"""Ticks to both sides of the guessed one that are read first."""
FURTHER = 4
"""How many times longer the next read is than all before it together."""


class Positions:
    """Positions of the groups of one log, seen through a session."""

    def __init__(self, tables: LogTables, opened: CallerConnection) -> None:
        self._names = LogNames.of(tables, opened.schema_map)
        self._sql = statements("position", self._names)
        self._opened = opened

    @classmethod
    async def caller_connection(cls, tables: LogTables, session: AnySession) -> "Positions":
        """Positions in a session's transaction."""
        return cls(tables, await caller_connection(session, tables.log))

    async def fetch(self, name: str, values: dict[str, Any]) -> Sequence[Any]:
        """Run one of the statements about positions in the session's transaction."""
        return await self._opened.fetch(self._sql[name], values)

    async def get(self, group: Group) -> tuple[int, int]:
        """Transaction and position of the last message before which everything is handled."""
        low = await self._low_water(group)
        return low.transaction_id, low.last_position

    async def cursor(self, group: Group) -> Cursor:
        """The place before which everything is handled or deferred."""
        low = await self._low_water(group)
        return Cursor(low.tick, low.position)

    async def _low_water(self, group: Group) -> LowWater:
        """How far the group has come everywhere; one that has no place has not begun."""
        rows = named(LowWater, await self.fetch("low_water", group.values))
        return next(iter(rows), LowWater(*BEGINNING, last_position=0, transaction_id=0))

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
            known = await self.tick_of(offset)
            if known is not None:
                place = Cursor(known, offset)
            else:
                pair = {"transaction_id": transaction_id, "offset": offset}
                place = _place(await self.fetch("place_of_pair", pair) or await self.fetch("last_place", {}))
        await self.put(group, place)

    async def lock(self, group: Group) -> None:
        """Keep the group's spans, and the messages that they may be put before, as they are until the commit.

        Comes before a place is searched for: retention may delete it as long as this has not returned.
        """
        await self.fetch("lock_group", group.values)

    async def put(self, group: Group, place: Cursor) -> None:
        """Put the group, which is locked, to a place."""
        call = {"channel": self._names.channel, "payload": changed(group)}
        values = {**group.values, "tick": place.tick, "position": place.position, **call}
        # One statement each: the second sees every span that was cut before the group was locked, and the third
        # what was deferred by a settle that the second waited for.
        await self.fetch("lock_spans", group.values)
        await self.fetch("seek", values)

    async def find(self, place: Place) -> Cursor:
        """The cursor from which reading begins at a place."""
        if isinstance(place, tuple):
            return _checked_cursor(place)
        if isinstance(place, datetime):
            if place.utcoffset() is None:
                msg = f"Seek to an aware time, e.g. datetime.now(UTC): {place!r} is naive."
                raise InvalidOption(msg)
            return _place(await self.fetch("place_before", {"moment": place}))
        if place == "earliest":
            return BEGINNING
        if place == "latest":
            return _place(await self.fetch("last_place", {}))
        other: object = place
        if isinstance(other, UUID | str):
            return await self._before(unique_id(other), other)
        msg = f"Seek to 'earliest', 'latest', a time, a Cursor or an event_id, not to {place!r}."
        raise InvalidOptionType(msg)

    async def _before(self, event_id: UUID | None, given: object) -> Cursor:
        wanted = {"event_id": None if event_id is None else str(event_id)}
        for position in column(await self.fetch("position_of_event", wanted)):
            tick = await self.tick_of(position)
            if tick is not None:
                # Just before it: the message itself is the first to be read.
                return Cursor(tick, position - 1)
        msg = f"No message with event_id {given} is in the log's order, or not yet, or not any more."
        raise InvalidOption(msg)

    async def tick_of(self, position: int) -> int | None:
        """The tick of a position; None while it is not sequenced, or not any more.

        Searched for near where it should be, and then further and further away: it costs as much as it came late.
        """
        for guessed in named(TickGuess, await self.fetch("guess_tick", {"position": position})):
            for start, end in around(guessed.guess, guessed.first, guessed.last):
                values = {"position": position, "first": start, "end": end}
                for tick in column(await self.fetch("place_of", values)):
                    return int(tick)
        return None


def _checked_cursor(place: tuple[object, ...]) -> Cursor:
    if len(place) != 2 or any(type(number) is not int or number not in BIGINT for number in place):
        msg = f"A place of two numbers is a Cursor(tick, position), as get_cursor gives it, not {place!r}."
        raise InvalidOption(msg)
    return Cursor(*place)  # type: ignore[arg-type]  # checked above


def _place(rows: Iterable[Sequence[Any]]) -> Cursor:
    """The place that was found, or the beginning."""
    return Cursor(*next(iter(rows), BEGINNING))


def around(guess: int, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Ranges of ticks that cover all of them, the nearest first: where they begin, and before what they end."""
    lo, hi = max(first, guess - NEAR), min(last + 1, guess + NEAR)
    yield lo, hi
    while lo > first or hi <= last:
        # A late one is behind the guess; before it only where the guess went astray.
        step = FURTHER * (hi - lo)
        if hi <= last:
            yield hi, min(last + 1, hi + step)
            hi = min(last + 1, hi + step)
        if lo > first:
            yield max(first, lo - step), lo
            lo = max(first, lo - step)


MOST = 20_000
"""Positions that are looked at by one question, over all places where cursors stand."""
LEAST = 200
"""Positions that are looked at behind each place, however many there are."""


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
    """Since the first of them could be read; where it is an estimate and nothing was found, at most."""
    is_estimate: bool = False
    """Whether more is unread than was counted."""


@dataclass(frozen=True, slots=True)
class SlotLag:
    """What one slot has not read yet; as a pair, messages and seconds."""

    messages: int
    seconds: float
    is_estimate: bool = False

    def __iter__(self) -> Iterator[float]:
        return iter((self.messages, self.seconds))


@dataclass(frozen=True, slots=True)
class Sample:
    """What was looked at behind a cursor."""

    is_all: bool
    looked_at: int
    beyond: int
    """Positions behind those that were looked at."""
    is_counted: bool
    """Whether the number of these is known, and not only how far numbers were drawn."""

    def scaled(self, count: int) -> int:
        """How many there are, if so many were found."""
        return count if self.is_all or not self.looked_at else count + round(count / self.looked_at * self.beyond)

    def is_exact(self, uri: str, slots: tuple[int, int]) -> bool:
        """Whether that is no estimate: all was looked at, or all of it is to be read."""
        return self.is_all or (self.is_counted and uri == "" and slots == (0, 255))


async def lags(connection: DedicatedConnection, names: LogNames, group: str | None, uri: str | None) -> list[Lag]:
    """What every span of a group, or of all groups, has not read yet."""
    return [_of_span(row) for row in await _ask(connection, names, group, uri)]


async def lags_by_slot(connection: DedicatedConnection, names: LogNames, group: Group) -> dict[int, SlotLag]:
    """What each slot of a group is behind; slots in which nothing unread was found are left out."""
    found: dict[int, SlotLag] = {}
    for row in await _ask(connection, names, group.name, group.uri):
        sample = _sample(row)
        for slot, count, seconds in zip(row.slots, row.counts, row.seconds, strict=True):
            found[slot] = SlotLag(sample.scaled(count), seconds, not sample.is_all)
    return dict(sorted(found.items()))


async def _ask(connection: DedicatedConnection, names: LogNames, group: str | None, uri: str | None) -> list[LagRow]:
    values = {"group": group, "uri": uri, "most": MOST, "least": LEAST}
    return named(LagRow, await connection.fetch(statements("position", names)["lag"], values))


def _sample(row: LagRow) -> Sample:
    return Sample(row.is_all, row.looked_at, row.beyond, row.is_counted)


def _of_span(row: LagRow) -> Lag:
    sample, slots = _sample(row), (row.lo, row.hi)
    is_estimate = not sample.is_exact(row.uri, slots)
    return Lag(
        row.consumer_group,
        row.uri,
        slots,
        Cursor(row.tick, row.position),
        row.owner,
        row.leased_until,
        row.updated_at,
        messages=sample.scaled(sum(row.counts)),
        seconds=max(row.seconds, default=row.last_seconds if is_estimate else 0.0),
        is_estimate=is_estimate,
    )

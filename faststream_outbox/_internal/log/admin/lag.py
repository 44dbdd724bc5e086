"""Lag: what groups have not read yet, in messages and in seconds.

Counted up to a bound, and estimated beyond it from what was counted: a question must not cost what the answer is
large. What is unread is counted exactly where it is little, and also where it is much, if a span has every slot and no
filter and the ticks in between are not too many. Anything else is marked as an estimate. Used by `Outbox`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.sharing.leases import Group
from faststream_outbox._internal.log.sharing.spans import Cursor
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.log_admin_rows import LagRow
from faststream_outbox._internal.sql.rows import named

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

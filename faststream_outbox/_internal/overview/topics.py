"""Topics: who reads which slots, which keys are blocked, which transactions keep gaps open.

Lag, members and counts of a group are `log.admin.groups.GroupStatus`. Asked by `Overview`, on its connection.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from faststream_outbox._internal.log.admin.groups import asking, check_known
from faststream_outbox._internal.log.admin.positions import Lag, lags
from faststream_outbox._internal.log.blocked import PARKED
from faststream_outbox._internal.log.ordering.timeline import open_gaps
from faststream_outbox._internal.log.sharing.slots import checked_filter, checked_group
from faststream_outbox._internal.options import check_count
from faststream_outbox._internal.overview.processes import Process
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.overview_rows import BlockedKeyRow, OpenGap
from faststream_outbox._internal.sql.statements import named, statements

KEYS = 5_000
"""Keys that are looked at by one question, over all groups."""
LEAST_KEYS = 100
"""Keys that are looked at of each group, however many groups there are."""
MOST_COUNTED = 50_000
"""Waiting messages that are counted by one question, over all keys."""
LEAST_COUNTED = 10
"""Waiting messages that are counted of each key, however many keys there are."""
MOST_ROWS = 10_000
"""The largest `limit`."""


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """A span of slots of a group: where it stands and who reads it."""

    group: str
    uri: str
    slots: tuple[int, int]
    tick: int
    position: int
    messages: int
    seconds: float
    is_estimate: bool
    owner: Process | None
    owner_id: str | None
    """Eight hexadecimal digits of whoever reads it, also where the server knows no connection of that process."""
    leased_until: datetime | None


@dataclass(frozen=True, slots=True)
class BlockedKey:
    """A key of a group whose messages wait for one that failed."""

    group: str
    uri: str
    key: str
    position: int
    """The message that the others wait for."""
    state: str
    """"retrying" or "parked"."""
    waiting: int
    is_estimate: bool
    """Whether more wait than were counted."""
    since: datetime | None
    """When the message in front failed first."""
    error: str | None
    attempts: int = 0
    """How often the message in front was tried."""
    due: datetime | None = None
    """When it is tried again; None where it is parked."""
    has_more: bool = False
    """Whether its group has more keys that wait than were looked at."""


@dataclass(frozen=True, slots=True)
class GapOwner:
    """A transaction that has drawn numbers and has not ended."""

    backend_pid: int | None
    """None where it is prepared: nobody is connected then."""
    prepared: str | None
    """The name under which it was prepared: for COMMIT PREPARED or ROLLBACK PREPARED."""
    user: str | None
    application_name: str | None
    state: str | None
    """As `pg_stat_activity` has it: "active", "idle in transaction" …; None without the right to see it."""
    query: str | None
    """What it runs, or ran last; None without the right to see it."""
    age_seconds: float | None
    """Since it began, or was prepared; None without the right to see it."""


@dataclass(frozen=True, slots=True)
class GapStatus:
    """Positions that were drawn by a transaction that has not ended: readers wait at most for their keys' order."""

    first_position: int
    last_position: int
    age_seconds: float
    """Since the gap was found; of numbers behind the last that is sequenced, since their transaction began: at most."""
    backend_pid: int | None
    """Whose transaction it is, where the server says so."""
    query: str | None
    application_name: str | None
    owners: tuple[GapOwner, ...] = ()
    """Every transaction that may own it, the oldest first; the columns above are those of the first one."""

    @property
    def is_certain(self) -> bool:
        """Whether it can be nobody else's."""
        return len(self.owners) == 1


async def slots(connection: DedicatedConnection, names: LogNames, group: str, uri: str) -> list[SlotStatus]:
    """Where each span of a group stands; without the processes that read them, see `with_owners`."""
    name, checked = checked_group(group), checked_filter(uri)
    await check_known(asking(connection, names), name, checked, ())
    return [_slot(each) for each in await lags(connection, names, name, checked)]


def with_owners(spans: Sequence[SlotStatus], processes: Sequence[Process]) -> list[SlotStatus]:
    """The spans with the processes that read them."""
    by_id: Mapping[str | None, Process] = {process.worker_id: process for process in processes}
    return [replace(span, owner=by_id.get(span.owner_id)) for span in spans]


async def blocked_keys(
    connection: DedicatedConnection, names: LogNames, group: str | None, limit: int
) -> list[BlockedKey]:
    """Keys whose messages wait, of a group or of all, those with the most first."""
    check_count("limit", limit, most=MOST_ROWS)
    if group is not None:
        await check_known(asking(connection, names), checked_group(group), None, ())
    values = {
        "group": group,
        "limit": limit,
        "keys": KEYS,
        "least_keys": LEAST_KEYS,
        "most": MOST_COUNTED,
        "least": LEAST_COUNTED,
    }
    rows = await connection.fetch(statements("overview_log", names)["blocked_keys"], values)
    return [_blocked(row) for row in named(BlockedKeyRow, rows)]


async def gaps(connection: DedicatedConnection, names: LogNames, limit: int) -> list[GapStatus]:
    """Positions whose transactions have not ended, the oldest first."""
    check_count("limit", limit, most=MOST_ROWS)
    rows = await open_gaps(connection, names, limit=limit, beyond=True)
    ranges = [_gap([*owned]) for _, owned in groupby(sorted(rows, key=_range), _range)]
    return sorted(ranges, key=lambda gap: (-gap.age_seconds, gap.first_position))[:limit]


def _slot(span: Lag) -> SlotStatus:
    return SlotStatus(
        span.group,
        span.uri,
        span.slots,
        span.cursor.tick,
        span.cursor.position,
        span.messages,
        span.seconds,
        span.is_estimate,
        owner=None,
        owner_id=None if span.owner is None else span.owner.hex[:8],
        leased_until=None if span.owner is None else span.leased_until,
    )


def _blocked(row: BlockedKeyRow) -> BlockedKey:
    is_parked = row.state == PARKED
    said = [part for part in (row.error_type, row.error_message) if part]
    return BlockedKey(
        row.consumer_group,
        row.uri,
        row.key,
        row.position,
        "parked" if is_parked else "retrying",
        row.waiting,
        row.is_estimate,
        row.since,
        ": ".join(said) or None,
        row.attempts,
        None if is_parked else row.due,
        row.has_more,
    )


def _range(row: OpenGap) -> tuple[int, int]:
    return row.lo, row.hi


def _gap(rows: Sequence[OpenGap]) -> GapStatus:
    """A gap, with every transaction that may own it."""
    known = [row for row in rows if row.pid is not None or row.prepared is not None]
    by_age = sorted(known, key=lambda row: -(row.running or 0.0))
    owners = tuple(
        GapOwner(row.pid, row.prepared, row.user, row.application, row.state, row.query, row.running) for row in by_age
    )
    first = owners[0] if owners else None
    return GapStatus(
        rows[0].lo,
        rows[0].hi,
        max(row.age or 0.0 for row in rows),
        None if first is None else first.backend_pid,
        None if first is None else first.query,
        None if first is None else first.application_name,
        owners,
    )

"""Retention: what is old and read by every living group goes away.

Never past the slowest living group, a message that is set aside, or a gap. A group that has not been
heard of for a configured time stops holding messages back, and that is told. Deletes in slices, so that
no transaction is long; or drops whole partitions, where the log has them. What must stay is found anew for
each of them, under a lock that keeps groups where they are. Called by `Outbox.clean`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from faststream_outbox.errors import InvalidOption
from faststream_outbox.events import Events
from faststream_outbox.events import table as told
from faststream_outbox.log.partitions import Partitions
from faststream_outbox.log.retention_lock import undisturbed
from faststream_outbox.schema.log_tables import LogNames
from faststream_outbox.sql import Statements, statements
from faststream_outbox.sql.wire import Row, Wire

SLICE = 10_000


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What went away."""

    messages: int
    ticks: int
    partitions: int
    floor: int


async def clean(
    wire: Wire,
    names: LogNames,
    events: Events,
    *,
    older_than: timedelta,
    group_expires_after: timedelta,
    partitions: Partitions | None = None,
) -> Cleaned:
    """Delete messages that are older and that no living group needs: slice by slice, or by whole partitions."""
    if older_than < timedelta(0) or group_expires_after <= timedelta(0):
        msg = "older_than and group_expires_after must be positive times."
        raise InvalidOption(msg)
    sql = statements("position", names)
    expiry = {"group_seconds": group_expires_after.total_seconds()}
    for group, uri, idle in await wire.fetch(sql["dead_groups"], expiry):
        events.emit(told.GroupExpired(group, uri, idle))
    deleted, floor, dropped = 0, 0, list[str]()
    if partitions is None:
        deleted, floor = await _delete(wire, sql, {**expiry, "age": older_than.total_seconds()})
    else:
        dropped += await partitions.drop(older_than, group_expires_after=group_expires_after)
        floor = (await wire.fetch(sql["retained"], expiry))[0][0] or 0
    ticks = len(await wire.fetch(sql["delete_ticks"], expiry))
    return Cleaned(deleted, ticks, len(dropped), floor)


async def _delete(wire: Wire, sql: Statements, values: Mapping[str, Any]) -> tuple[int, int]:
    """Delete slice by slice: how many messages went, and from where on they must stay."""
    lock, delete = sql["lock_retention"], sql["delete_slice"]
    deleted, after, limit = 0, -1, SLICE

    async def next_slice() -> Sequence[Row]:
        nonlocal limit
        try:
            results = await wire.fetch_each([(lock, {}), (delete, {**values, "limit": limit, "after": after})])
        except TimeoutError:
            if limit == 1:
                raise
            # Large messages take long: so many would never go.
            limit //= 2
            return []
        return results[1] if len(results) > 1 else []

    while True:
        gone, old, last, floor = (await undisturbed(next_slice))[0]
        deleted += gone
        if old < limit:
            return deleted, floor or 0
        after = last

"""Retention: what is old and read by every living group goes away.

Never past the slowest living group, a message that is set aside, or a gap. A group that has not been
heard of for a configured time stops holding messages back, and that is told. Deletes in slices, so that
no transaction is long; or drops whole partitions, where the log has them. Called by `Outbox.clean`.
"""

from dataclasses import dataclass
from datetime import timedelta

from faststream_outbox.errors import InvalidOption
from faststream_outbox.events import Events
from faststream_outbox.events import table as told
from faststream_outbox.log.partitions import Partitions
from faststream_outbox.schema.log_tables import LogNames
from faststream_outbox.sql import statements
from faststream_outbox.sql.wire import Wire

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
    floor = (await wire.fetch(sql["retained"], {**expiry, "with_aside": partitions is not None}))[0][0] or 0
    values = {**expiry, "floor": floor, "limit": SLICE, "age": older_than.total_seconds(), "after": -1}
    deleted = 0
    dropped = [] if partitions is None else await partitions.drop(floor, older_than)
    while partitions is None:
        gone, old, last = (await wire.fetch(sql["delete_slice"], values))[0]
        deleted += gone
        if old < SLICE:
            break
        values["after"] = last
    ticks = len(await wire.fetch(sql["delete_ticks"], expiry))
    return Cleaned(deleted, ticks, len(dropped), floor)

"""For operators: the groups of a log, to list, to pause, to resume and to delete.

A pause is durable and heeded in every process: whoever reads finishes its batch, gives its slots back and waits; the
group keeps its place, and retention keeps what it has not read. Deleting a group that somebody reads is refused, unless
forced. A name that nobody has heard of is more often a slip of the hand than a new group: it is refused with the
nearest one that is known, by a place in the log, a member, something deferred, or a reader in this process. Reached as
`Outbox.groups` and through the broker; `check_known` is asked by whatever else operators do with a group.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.log.admin.positions import Lag, lags
from faststream_outbox._internal.log.sharing.slots import Group, checked_filter, checked_group
from faststream_outbox._internal.options import nearest
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql.log_admin_rows import DeletedOfGroup, GroupName, ListedGroup
from faststream_outbox._internal.sql.statements import named, statements
from faststream_outbox.errors import GroupInUse, InvalidOption, UnknownName

if TYPE_CHECKING:
    from faststream_outbox._internal.log.client import LogClient


Fetch = Callable[[str, dict[str, Any]], Awaitable[Sequence[Any]]]
"""Runs one of the statements about positions."""

MOST_NAMES = 1000
"""How many groups are searched for the nearest one."""
CREATE = " To make a new group at this place: seek(…, create=True)."


def asking(connection: DedicatedConnection, names: LogNames) -> Fetch:
    """Runs the statements about positions on this connection."""
    sql = statements("position", names)

    async def fetch(name: str, values: dict[str, Any]) -> Sequence[Row]:
        return await connection.fetch(sql[name], values)

    return fetch


async def check_known(fetch: Fetch, name: str, uri: str | None, here: Collection[Group], hint: str = "") -> None:
    """Raise `UnknownName` if nobody has heard of the group; `uri=None` is a group of this name, whatever it reads.

    Without a hint at what to do instead, not where there is no group at all: the first one has yet to start.
    """
    if await _is_known(fetch, name, uri, here):
        return
    known = [*await _groups(fetch), *here]
    if not known and not hint:
        return
    uris = sorted({group.uri for group in known if group.name == name})
    if uris and (uri is None or uri in uris):
        # It began to read just now.
        return
    if uris:
        what = " and ".join(_shown(each) for each in uris)
        msg = f"Group {name!r} reads {what}, not {_shown(uri or '')}: pass the uri that it reads by.{hint}"
    else:
        msg = f"No group {name!r} is known; {nearest(name, (group.name for group in known), 'group')}{hint}"
    raise UnknownName(msg)


async def near_miss(fetch: Fetch, name: str, uri: str, here: Collection[Group]) -> str | None:
    """The group that was probably meant, if nobody has heard of this one."""
    if await _is_known(fetch, name, uri, here):
        return None
    names = {group.name for group in [*await _groups(fetch), *here]} - {name}
    return next(iter(get_close_matches(name, names, n=1, cutoff=0.8)), None)


async def _is_known(fetch: Fetch, name: str, uri: str | None, here: Collection[Group]) -> bool:
    if any(group.name == name and uri in (None, group.uri) for group in here):
        return True
    return bool(await fetch("known_group", {"group": name, "uri": uri}))


async def _groups(fetch: Fetch) -> list[Group]:
    rows = named(GroupName, await fetch("groups", {"limit": MOST_NAMES}))
    return [Group(row.consumer_group, row.uri) for row in rows]


def _shown(uri: str) -> str:
    return repr(uri) if uri else "every URI"


SLICE = 10_000
"""Messages that are deferred, and end with their group, in one transaction."""
MOST_COUNTED = 100_000
"""Messages of each group that are counted of those that are deferred."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A group as it stands now."""

    group: str
    uri: str
    members: int
    """Readers that live, in all processes."""
    slots: int
    """Slots that somebody reads now, of 256."""
    paused_since: datetime | None
    last_seen: datetime | None
    """The last sign of life of whoever read; None where nobody ever did."""
    parked: int
    deferred: int
    retrying: int
    has_more: bool
    """Whether more messages are deferred than were counted."""
    messages: int
    """Unread messages of all its slots."""
    seconds: float
    """Since the first of them could be read."""
    is_estimate: bool
    """Whether more is unread than was counted."""


class Groups:
    """The groups of one log."""

    def __init__(self, client: "LogClient") -> None:
        self._client = client
        self._sql = statements("group_admin", client.names)

    async def list(self, consumer_group: str | None = None, uri: str | None = None) -> Sequence[GroupStatus]:
        """Groups by name: who reads them, what they have not read, and what waits in them.

        consumer_group: the group's name; None is all groups.
        uri: what the group reads; None is whatever it reads.
        """
        client = self._client
        return await list_groups(client.operator_connection, client.names, consumer_group, uri, client.groups)

    async def pause(self, consumer_group: str, uri: str = "") -> bool:
        """Read no more messages of a group, in any process, until it is resumed; False if it was paused already.

        Batches that are in flight are finished. The group keeps its place.

        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        group = await self._known(consumer_group, uri)
        if await self._change("pause_group", group):
            return True
        if not await self._fetch("is_paused", group):
            msg = (
                f"Group {group.name!r} has no place in the log yet, which a pause would keep. Start it first, or put "
                "it somewhere: seek(…, create=True)."
            )
            raise InvalidOption(msg)
        return False

    async def resume(self, consumer_group: str, uri: str = "") -> bool:
        """Read a group again, in every process, from where it stands; False if it was not paused.

        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        return await self._change("resume_group", await self._known(consumer_group, uri))

    async def paused(self) -> Sequence[Group]:
        """The groups that are paused."""
        rows = await self._client.operator_connection.fetch(self._sql["paused_groups"], {})
        return [Group(row.consumer_group, row.uri) for row in named(GroupName, rows)]

    async def delete(self, consumer_group: str, uri: str = "", *, force: bool = False) -> int:
        """Forget a group: its place, its members, and what it has deferred; how many messages these were.

        Refused with `GroupInUse` while somebody reads it. Whoever still does, where that is forced, makes it anew, at
        the place where new groups begin.

        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        force: also while somebody reads it.
        """
        group = await self._known(consumer_group, uri)
        values = {**group.values, "force": force, "limit": SLICE}
        connection, ended, gone = self._client.operator_connection, 0, SLICE
        while gone >= SLICE:
            gone = _freed(group, await connection.fetch(self._sql["delete_waiting"], values))
            ended += gone
        lock = statements("position", self._client.names)["lock_group"]
        _, deleted = await connection.fetch_each([(lock, group.values), (self._sql["delete_group"], values)])
        ended += _freed(group, deleted)
        await self._client.call(group)
        return ended

    async def _known(self, name: str, uri: str) -> Group:
        group = Group(checked_group(name), checked_filter(uri))
        await check_known(self._client.ask, group.name, group.uri, self._client.groups)
        return group

    async def _fetch(self, name: str, group: Group) -> Sequence[Row]:
        return await self._client.operator_connection.fetch(self._sql[name], group.values)

    async def _change(self, name: str, group: Group) -> bool:
        is_changed = bool(await self._fetch(name, group))
        if is_changed:
            await self._client.call(group)
        return is_changed


async def list_groups(
    connection: DedicatedConnection,
    names: LogNames,
    group: str | None = None,
    uri: str | None = None,
    here: Collection[Group] = (),
) -> Sequence[GroupStatus]:
    """Groups by name, asked on this connection; `here` are those that this process reads."""
    if group is not None:
        await check_known(asking(connection, names), group, uri, here)
    values = {"group": group, "uri": uri, "most": MOST_COUNTED}
    rows = await connection.fetch(statements("group_admin", names)["list_groups"], values)
    behind: dict[tuple[str, str], list[Lag]] = {}
    for each in await lags(connection, names, group, uri):
        behind.setdefault((each.group, each.uri), []).append(each)
    return [_status(row, behind.get((row.consumer_group, row.uri), ())) for row in named(ListedGroup, rows)]


def _freed(group: Group, rows: Sequence[Row]) -> int:
    """How many messages ended with their group; `GroupInUse` if somebody reads it."""
    (deleted,) = named(DeletedOfGroup, rows)
    if not deleted.may:
        msg = (
            f"Group {group.name!r} is read by somebody. Stop its readers first, or wait until the lease of a killed "
            "one has ended; delete(…, force=True) deletes it even so, and whoever reads makes it anew."
        )
        raise GroupInUse(msg)
    return deleted.gone


def _status(row: ListedGroup, spans: Sequence[Lag]) -> GroupStatus:
    """A group, with what all its spans are behind."""
    messages = sum(span.messages for span in spans)
    seconds = max((span.seconds for span in spans), default=0.0)
    return GroupStatus(*row, messages, seconds, any(span.is_estimate for span in spans))

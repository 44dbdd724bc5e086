"""Groups that somebody has heard of: a name that is none of them is more often a slip of the hand than a new group.

A group is known if it has a place in the log, a member, something deferred, or a reader in this process. Used by
whatever operators ask about a group, through their session or the log's own connection.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from difflib import get_close_matches
from typing import Any

from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.log.sharing.leases import Group
from faststream_outbox._internal.options import nearest
from faststream_outbox._internal.schema.log_tables import LogNames
from faststream_outbox._internal.sql import statements
from faststream_outbox._internal.sql.log_admin_rows import GroupName
from faststream_outbox._internal.sql.rows import named
from faststream_outbox.errors import UnknownName

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

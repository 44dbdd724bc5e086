"""For operators: what is deferred, and what to do about it.

A parked message has failed for good for one group. It can be retried as if for the first time, or ended:
`resolve` for one that was dealt with by hand, `skip` for whatever waits, parked or not. Readers hear of it
and go on. Reached as `Outbox.parked`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from faststream_outbox._internal.envelope import read_headers
from faststream_outbox._internal.log.admin.groups import check_known
from faststream_outbox._internal.log.blocked import DEFERRED, PARKED, RETRY
from faststream_outbox._internal.log.message import OutboxMessage, shown_payload
from faststream_outbox._internal.log.sharing.slots import Group, checked_filter, checked_group
from faststream_outbox._internal.options import MOST_ROWS, check_choice, check_count, check_text
from faststream_outbox._internal.sql.log_admin_rows import DeferredRow
from faststream_outbox._internal.sql.statements import column, named, statements

if TYPE_CHECKING:
    from faststream_outbox._internal.log.client import LogClient


@dataclass(frozen=True, slots=True)
class DeferredMessage:
    """A message that waits in a group: `retry`, `deferred` behind another one of its key, or `parked`."""

    group: str
    uri: str
    position: int
    tick: int
    key: str
    state: str
    attempts: int
    due: datetime | None
    first_attempt_at: datetime | None
    updated_at: datetime
    error_type: str | None
    error_message: str | None
    traceback: str | None
    message: OutboxMessage | None


class Parking:
    """Messages of one log that are deferred."""

    def __init__(self, client: "LogClient") -> None:
        self._client = client
        self._sql = statements("deferred", client.names)

    async def list(
        self,
        consumer_group: str | None = None,
        uri: str | None = None,
        *,
        state: str | None = "parked",
        key: str | None = None,
        error_type: str | None = None,
        limit: int = 1000,
        after: DeferredMessage | None = None,
    ) -> Sequence[DeferredMessage]:
        """What is deferred, by group and position; `state=None` is everything that waits.

        consumer_group: the group's name; None is all groups.
        uri: what the group reads; None is whatever it reads.
        state: "retry", "deferred" or "parked"; None is all of them.
        key: only messages of this URI.
        error_type: only those that failed with an error of this class, as `DeferredMessage.error_type` has it.
        limit: most entries.
        after: the last entry of the page before; None is the first page.
        """
        check_count("limit", limit, most=MOST_ROWS)
        for name, value in {"consumer_group": consumer_group, "uri": uri, "key": key, "error_type": error_type}.items():
            if value is not None:
                check_text(name, value)
        if state is not None:
            check_choice("state", state, (RETRY, DEFERRED, PARKED))
        if consumer_group is not None:
            await check_known(self._client.ask, consumer_group, uri, self._client.groups)
        # Nothing has a smaller name than the empty one, or a position below 0.
        place = ("", uri or "", -1) if after is None else (after.group, after.uri, after.position)
        values = {
            "group": consumer_group,
            "uri": uri,
            "state": state,
            "key": key,
            "error_type": error_type,
            "limit": limit,
            **dict(zip(("after_group", "after_uri", "after_position"), place, strict=True)),
        }
        sql = self._sql["list_deferred" if consumer_group is None else "list_deferred_of_group"]
        rows = await self._client.operator_connection.fetch(sql, values)
        return [_read(row) for row in named(DeferredRow, rows)]

    async def retry(
        self, consumer_group: str, uri: str = "", *, positions: Sequence[int] | None = None
    ) -> Sequence[int]:
        """Let parked messages run again: these, or all of the group; their positions.

        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        positions: which; None is all that the group has parked.
        """
        values = {"positions": None if positions is None else [*positions]}
        return await self._change("retry_deferred", consumer_group, uri, values)

    async def resolve(self, consumer_group: str, *positions: int, uri: str = "") -> Sequence[int]:
        """End parked messages that were dealt with by hand; their positions.

        consumer_group: the group's name.
        positions: which.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        return await self._change("drop_deferred", consumer_group, uri, {"positions": [*positions], "any_state": False})

    async def skip(self, consumer_group: str, *positions: int, uri: str = "") -> Sequence[int]:
        """End messages that wait, parked or not, without handling them; their positions.

        consumer_group: the group's name.
        positions: which.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        return await self._change("drop_deferred", consumer_group, uri, {"positions": [*positions], "any_state": True})

    async def _change(self, name: str, group: str, uri: str, values: dict[str, Any]) -> Sequence[int]:
        names = {"group": checked_group(group), "uri": checked_filter(uri)}
        await check_known(self._client.ask, names["group"], names["uri"], self._client.groups)
        changed = column(await self._client.operator_connection.fetch(self._sql[name], {**names, **values}))
        if changed:
            await self._client.call(Group(names["group"], names["uri"]))
        return changed


def _read(row: DeferredRow) -> DeferredMessage:
    message = None
    if row.metadata is not None:
        metadata = read_headers(row.metadata)
        payload = shown_payload(row.payload, row.body, metadata)
        message = OutboxMessage(row.key, payload, metadata, row.created_at, row.position, row.transaction_id, row.tick)
    return DeferredMessage(
        group=row.consumer_group,
        uri=row.uri,
        position=row.position,
        tick=row.tick,
        key=row.key,
        state=row.state,
        attempts=row.attempts,
        due=row.due,
        first_attempt_at=row.first_attempt_at,
        updated_at=row.updated_at,
        error_type=row.error_type,
        error_message=row.error_message,
        traceback=row.traceback,
        message=message,
    )

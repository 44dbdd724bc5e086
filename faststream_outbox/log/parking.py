"""For operators: what is set aside, and what to do about it.

A parked message has failed for good for one group. It can be retried as if for the first time, or ended:
`resolve` for one that was dealt with by hand, `skip` for whatever waits, parked or not. Readers hear of it
and go on. Reached as `Outbox.parked`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from faststream_outbox.envelope import read_headers
from faststream_outbox.log.known_groups import check_known
from faststream_outbox.log.message import OutboxMessage, shown_payload
from faststream_outbox.log.slots import checked_filter, checked_group
from faststream_outbox.sql import statements

if TYPE_CHECKING:
    from faststream_outbox.log.client import LogClient


@dataclass(frozen=True, slots=True)
class SetAside:
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
    """Messages of one log that are set aside."""

    def __init__(self, client: "LogClient") -> None:
        self._client = client
        self._sql = statements("aside", client.names)

    async def list(
        self,
        consumer_group: str | None = None,
        uri: str | None = None,
        *,
        state: str | None = "parked",
        key: str | None = None,
        limit: int = 1000,
    ) -> Sequence[SetAside]:
        """What is set aside, in the log's order; `state=None` is everything that waits.

        consumer_group: the group's name; None is all groups.
        uri: what the group reads; None is whatever it reads.
        state: "retry", "deferred" or "parked"; None is all of them.
        key: only messages of this URI.
        limit: most entries.
        """
        if consumer_group is not None:
            await check_known(self._client.ask, consumer_group, uri, self._client.groups)
        values = {"group": consumer_group, "uri": uri, "state": state, "key": key, "limit": limit}
        return [_read(row) for row in await self._client.operator_wire.fetch(self._sql["list_aside"], values)]

    async def retry(
        self, consumer_group: str, uri: str = "", *, positions: Sequence[int] | None = None
    ) -> Sequence[int]:
        """Let parked messages run again: these, or all of the group; their positions.

        consumer_group: the group's name.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        positions: which; None is all that the group has parked.
        """
        values = {"positions": None if positions is None else [*positions]}
        return await self._change("retry_aside", consumer_group, uri, values)

    async def resolve(self, consumer_group: str, *positions: int, uri: str = "") -> Sequence[int]:
        """End parked messages that were dealt with by hand; their positions.

        consumer_group: the group's name.
        positions: which.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        return await self._change("drop_aside", consumer_group, uri, {"positions": [*positions], "any_state": False})

    async def skip(self, consumer_group: str, *positions: int, uri: str = "") -> Sequence[int]:
        """End messages that wait, parked or not, without handling them; their positions.

        consumer_group: the group's name.
        positions: which.
        uri: what the group reads: this URI and whatever lies below it; empty is everything.
        """
        return await self._change("drop_aside", consumer_group, uri, {"positions": [*positions], "any_state": True})

    async def _change(self, name: str, group: str, uri: str, values: dict[str, Any]) -> Sequence[int]:
        names = {"group": checked_group(group), "uri": checked_filter(uri)}
        await check_known(self._client.ask, names["group"], names["uri"], self._client.groups)
        rows = await self._client.operator_wire.fetch(self._sql[name], {**names, **values})
        if rows:
            await self._client.call()
        return [row[0] for row in rows]


def _read(row: Sequence[Any]) -> SetAside:
    group, uri, position, tick, _slot, key, state, attempts, due, first, updated, kind, text, trace = row[:14]
    message = None
    if row[16] is not None:
        metadata = read_headers(row[16])
        payload = shown_payload(row[14], row[15], metadata)
        message = OutboxMessage(key, payload, metadata, row[17], position, row[18], tick)
    return SetAside(group, uri, position, tick, key, state, attempts, due, first, updated, kind, text, trace, message)

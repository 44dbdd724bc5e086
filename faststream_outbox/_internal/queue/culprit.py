"""Finding the one message that makes every claim of it fail, and setting it apart.

A claim of one message that fails, again and again, while the same connection answers other questions
is that message's own failure: content that the driver cannot read, or that the network cannot carry in
time. It is set apart by a statement that does not touch its content, so that its neighbours get through.
Called through `asking` after a claim of one message has failed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from faststream_outbox._internal.connections.blame import is_bad_line
from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.types import MessageSetApart
from faststream_outbox._internal.outcomes.failure import storable
from faststream_outbox._internal.queue.planning.lanes import AFTER_ALL_IDS
from faststream_outbox._internal.sql import Statements
from faststream_outbox._internal.sql.queue_rows import ClaimableRow
from faststream_outbox._internal.sql.rows import column, named

STRIKES = 3
"""Claims of one message that may fail before it is set apart."""
MOST_REASON = 500
"""Characters that are kept of the reason."""
STRIKES_OF_A_BAD_LINE = 10
"""A connection that broke may have broken by chance, even several times in a row."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A claim of one message failed: how to find that message, and why it failed."""

    queue: str
    question: str
    """The statement that finds the message."""
    values: dict[str, Any]
    ttl: float
    error: Exception


def doubt_of_lane(queue: str, values: Mapping[str, Any], error: Exception) -> Doubt:
    """By the values of the claim of one message of one lane."""
    asked = {
        "queues": values["queues"],
        "priorities": values["priorities"],
        "from_ats": values["floor_ats"],
        "from_ids": values["floor_ids"],
        "to_ats": [None],
        "to_ids": [AFTER_ALL_IDS],
        "ttls": values["ttls"],
        "most": 1,
    }
    return Doubt(queue, "claimable", asked, values["ttls"][0], error)


def doubt_of_key(queue: str, key: str, ttl: float, error: Exception) -> Doubt:
    """By the key of which one message was claimed."""
    return Doubt(queue, "head_of_key", {"queue": queue, "key": key}, ttl, error)


def doubt_of_message(values: Mapping[str, Any], error: Exception) -> Doubt:
    """By the values of the claim of one message by its id."""
    return Doubt(values["queues"][0], "exists", {"id": values["ids"][0]}, values["ttls"][0], error)


def _first_id(doubt: Doubt, rows: Sequence[Row]) -> int:
    if doubt.question == "claimable":
        return named(ClaimableRow, rows)[0].id
    first: int = column(rows)[0]
    return first


class Culprits:
    """Counts, for each message, the lone claims of it that failed."""

    def __init__(self, connection: DedicatedConnection, sql: Statements, events: Events) -> None:
        self._connection = connection
        self._sql = sql
        self._events = events
        self._strikes: dict[int, int] = {}

    def clear(self, numbers: Iterable[int]) -> None:
        """These messages could be fetched."""
        if self._strikes:
            for number in numbers:
                self._strikes.pop(number, None)

    async def examine(self, doubt: Doubt, unheard: list[UUID]) -> None:
        """Find the message; set it apart if claims of it have failed too often."""
        values = doubt.values | {"unheard": unheard}
        rows = await self._connection.fetch(self._sql[doubt.question], values)
        if not rows:
            return
        number = _first_id(doubt, rows)
        strikes = self._strikes[number] = self._strikes.get(number, 0) + 1
        if strikes >= (STRIKES_OF_A_BAD_LINE if is_bad_line(doubt.error) else STRIKES):
            del self._strikes[number]
            await self._set_apart(number, doubt, unheard)

    async def _set_apart(self, number: int, doubt: Doubt, unheard: list[UUID]) -> None:
        reason = storable(f"could not be fetched: {type(doubt.error).__name__}: {doubt.error}", MOST_REASON)
        values = {"id": number, "ttl": doubt.ttl, "unheard": unheard}
        try:
            rows = await self._connection.fetch(self._sql["set_apart"], {**values, "reason": reason})
        except Exception:  # noqa: BLE001 - it may be the headers that cannot be read
            rows = await self._connection.fetch(self._sql["set_apart"], {**values, "reason": None})
        if rows:
            self._events.emit(MessageSetApart(doubt.queue, number, doubt.error))

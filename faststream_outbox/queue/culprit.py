"""Finding the one message that makes every claim of it fail, and setting it apart.

A claim of one message that fails, again and again, while the same connection answers other questions
is that message's own failure: content that the driver cannot read, or that the line cannot carry in
time. It is parked by a statement that does not touch its content, so that its neighbours get through.
Called by `claimer` after a lone claim has failed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from faststream_outbox.events import Events
from faststream_outbox.events.table import MessageSetApart
from faststream_outbox.outcomes.failure import storable
from faststream_outbox.queue.lane import AFTER_ALL_IDS, Claimable
from faststream_outbox.sql import Statements
from faststream_outbox.sql.wire import Wire

STRIKES = 3
MOST_REASON = 500
STRIKES_OF_A_BAD_LINE = 10
"""A connection that broke may have broken by chance, even several times in a row."""


class Named(NamedTuple):
    """A row of `head_of_key` and `exists`."""

    id: int


ANSWERS: Mapping[str, type[Claimable | Named]] = {"claimable": Claimable, "head_of_key": Named, "exists": Named}
"""What the rows of each question are."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A claim of one message failed: how to find that message, and why it failed."""

    queue: str
    question: str
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


def is_bad_line(error: Exception) -> bool:
    """Whether the connection broke, as opposed to an answer that was refused, unreadable or too slow."""
    if isinstance(error, TimeoutError):
        return False
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in ("08", "53", "57")
    # The drivers' own errors of a connection; none of the drivers need be installed.
    names = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(names & {"OperationalError", "InterfaceError"})


# Unsupported features, states of the transaction, logins, databases and schemas, conflicts, syntax and rights, locks.
_NEVER_OF_ONE = ("0A", "25", "26", "28", "3D", "3F", "40", "42", "55")


def may_be_of_one(error: Exception) -> bool:
    """Whether one message can have caused it; a missing right, table or column fails for every message alike."""
    state = getattr(error, "sqlstate", None)
    return not (isinstance(state, str) and state[:2] in _NEVER_OF_ONE)


class Culprits:
    """Counts, for each message, the lone claims of it that failed."""

    def __init__(self, wire: Wire, sql: Statements, events: Events) -> None:
        self._wire = wire
        self._sql = sql
        self._events = events
        self._strikes: dict[int, int] = {}

    def clear(self, numbers: Iterable[int]) -> None:
        """These messages could be fetched."""
        if self._strikes:
            for number in numbers:
                self._strikes.pop(number, None)

    async def examine(self, doubt: Doubt, unheard: list[UUID]) -> None:
        """Find the message; set it apart if it was the one too often."""
        values = doubt.values | {"unheard": unheard}
        rows = await self._wire.fetch(self._sql[doubt.question], values)
        if not rows:
            return
        number = ANSWERS[doubt.question](*rows[0]).id
        strikes = self._strikes[number] = self._strikes.get(number, 0) + 1
        if strikes >= (STRIKES_OF_A_BAD_LINE if is_bad_line(doubt.error) else STRIKES):
            del self._strikes[number]
            await self._set_apart(number, doubt, unheard)

    async def _set_apart(self, number: int, doubt: Doubt, unheard: list[UUID]) -> None:
        reason = storable(f"could not be fetched: {type(doubt.error).__name__}: {doubt.error}", MOST_REASON)
        values = {"id": number, "ttl": doubt.ttl, "unheard": unheard}
        try:
            rows = await self._wire.fetch(self._sql["set_apart"], {**values, "reason": reason})
        except Exception:  # noqa: BLE001 - it may be the headers that cannot be read
            rows = await self._wire.fetch(self._sql["set_apart"], {**values, "reason": None})
        if rows:
            self._events.emit(MessageSetApart(doubt.queue, number, doubt.error))

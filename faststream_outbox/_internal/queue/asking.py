"""How claims are sent, and what is made of those whose answer does not come.

`Asking` sends each statement of the claimer on its one connection. An answer that was lost leaves messages leased that
nobody handles: `Unheard` remembers the token of such a claim until its leases have run out in any case, so that this
process may take them again at once. A token whose answer arrived is never in there: nothing that is held is taken away.

A claim of one message that fails, again and again and for seconds, while the same connection answers other questions is
that message's own failure: content that the driver cannot read, or that the network cannot carry in time. `Culprits`
finds it and sets it apart, by statements that do not touch its content, so that its neighbours get through. Used by
`claimer` and `keyed`; the tokens by `scanner` too.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from faststream_outbox._internal.connections.cause import is_bad_line, may_be_of_one
from faststream_outbox._internal.connections.dedicated import Connection, Row
from faststream_outbox._internal.events import Events
from faststream_outbox._internal.events.types import MessageSetApart
from faststream_outbox._internal.outcomes.failure import storable
from faststream_outbox._internal.poison import Strikes
from faststream_outbox._internal.queue import clock
from faststream_outbox._internal.queue.lanes import AFTER_ALL_IDS
from faststream_outbox._internal.sql.queue_rows import ClaimableRow
from faststream_outbox._internal.sql.statements import Statements, column, named

MOST_TOKENS = 100


class Unheard:
    """Tokens, each until a time on the event loop's clock."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[UUID, float] = {}

    def add(self, token: UUID, until: float) -> None:
        """The answer to this token's claim was lost."""
        self._until[token] = until
        while len(self._until) > MOST_TOKENS:
            del self._until[next(iter(self._until))]

    def tokens(self, now: float) -> list[UUID]:
        """Those whose leases may still stand."""
        if self._until:
            self._until = {token: until for token, until in self._until.items() if until > now}
        return list(self._until)


STRIKES = 3
"""Claims of one message that may fail before it is set apart."""
STRIKE_SECONDS = 3.0
"""They fail for so long at least: what stumbles for a moment, as a process without memory, blames no message."""
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
    """Sets apart the messages whose lone claims have failed too often."""

    def __init__(self, connection: Connection, sql: Statements, events: Events) -> None:
        self._connection = connection
        self._sql = sql
        self._events = events
        self.strikes: Strikes[int] = Strikes()
        """Lone claims that failed, of each message."""

    async def examine(self, doubt: Doubt, unheard: list[UUID]) -> None:
        """Find the message; set it apart if claims of it have failed too often."""
        values = doubt.values | {"unheard": unheard}
        rows = await self._connection.fetch(self._sql[doubt.question], values)
        if not rows:
            return
        number, now = _first_id(doubt, rows), asyncio.get_running_loop().time()
        times = STRIKES_OF_A_BAD_LINE if is_bad_line(doubt.error) else STRIKES
        if self.strikes.failed(number, now, times=times, seconds=STRIKE_SECONDS):
            self.strikes.forget([number])
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


QUICK = 0.25
"""A claim that took less than this part of its time would also have brought twice as many."""


class Asking:
    """Sends the claimer's statements."""

    def __init__(
        self,
        connection: Connection,
        sql: Statements,
        unheard: Unheard,
        culprits: Culprits,
        lost: Callable[[float], None],
    ) -> None:
        """lost: called with the time when the answer to a claim was lost."""
        self._connection = connection
        self._sql = sql
        self.unheard = unheard
        self._culprits = culprits
        self._lost = lost
        self.sent_at = 0.0
        """When the last statement was sent, on the clock that leases are judged by."""
        self.doubts: list[Doubt] = []
        """Claims of one message that failed and were not examined yet."""

    @property
    def is_connected(self) -> bool:
        """Whether the connection of the last statement still stands."""
        return self._connection.is_open

    async def fetch(self, name: str, values: dict[str, Any]) -> tuple[Sequence[Row], float, float]:
        """Rows, the time before sending, and how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.sent_at = clock.now()
        token = values.get("token")
        if token is not None:
            values["unheard"] = self.unheard.tokens(began)
        try:
            rows = await self._connection.fetch(self._sql[name], values)
        except BaseException:
            if token is not None:
                # The server may have done it all the same, or may still do it.
                now = loop.time()
                self.unheard.add(token, now + max(values["ttls"]) + self._connection.timeout)
                self._lost(now)
            raise
        return rows, began, loop.time() - began

    def is_quick(self, took: float) -> bool:
        """Whether the claim could have brought twice as many in its time."""
        return took < QUICK * self._connection.timeout

    def suspect(self, doubt: Doubt) -> None:
        """A claim of one message failed: find out about that message, if it can be to blame."""
        if may_be_of_one(doubt.error):
            self.doubts = [doubt]

    async def examine(self) -> None:
        """Find out about the message that is in doubt."""
        await self._culprits.examine(self.doubts.pop(), self.unheard.tokens(asyncio.get_running_loop().time()))

    def arrived(self, numbers: Iterable[int]) -> None:
        """These messages could be fetched."""
        self._culprits.strikes.forget(numbers)

"""How claims are sent: one connection, the tokens of lost answers, and the messages in doubt.

What claiming with keys and claiming without them share. Used by `claimer` and `keyed`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from faststream_outbox._internal.connections.blame import may_be_of_one
from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.queue import clock
from faststream_outbox._internal.queue.culprit import Culprits, Doubt
from faststream_outbox._internal.queue.unheard import Unheard
from faststream_outbox._internal.sql import Statements

QUICK = 0.25
"""A claim that took less than this part of its time would also have brought twice as many."""


class Asking:
    """Sends the claimer's statements."""

    def __init__(
        self, connection: DedicatedConnection, sql: Statements, culprits: Culprits, lost: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._culprits = culprits
        self._lost = lost
        self._unheard = Unheard()
        self.sent_at = 0.0
        """When the last statement was sent, on the clock that leases are judged by."""
        self.doubts: list[Doubt] = []
        """Claims of one message that failed and were not examined yet."""

    def tokens(self) -> list[UUID]:
        """Tokens of claims whose answer was lost."""
        return self._unheard.tokens(asyncio.get_running_loop().time())

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
            values["unheard"] = self._unheard.tokens(began)
        try:
            rows = await self._connection.fetch(self._sql[name], values)
        except BaseException:
            if token is not None:
                # The server may have done it all the same, or may still do it.
                self._unheard.add(token, loop.time() + max(values["ttls"]) + self._connection.timeout)
                self._lost()
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
        await self._culprits.examine(self.doubts.pop(), self.tokens())

    def arrived(self, numbers: Iterable[int]) -> None:
        """These messages could be fetched."""
        self._culprits.clear(numbers)

"""How claims are asked for: one connection, tokens of lost answers, and the messages in doubt.

What the two kinds of claiming share, with keys and without. Used by `claimer` and `keyed`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from faststream_outbox.queue import clock
from faststream_outbox.queue.culprit import Culprits, Doubt, may_be_of_one
from faststream_outbox.queue.intake import Intake
from faststream_outbox.queue.unheard import Unheard
from faststream_outbox.queue.worker import Worker
from faststream_outbox.sql import Statements
from faststream_outbox.sql.wire import Row, Wire

QUICK = 0.25
"""A claim that took less than this part of its time would also have brought twice as many."""

Open = dict[Worker, Intake]
"""Workers that have room, and what they want."""


class Asking:
    """Sends the claimer's statements."""

    def __init__(self, wire: Wire, sql: Statements, culprits: Culprits, lost: Callable[[], None]) -> None:
        self._wire = wire
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

    async def fetch(self, name: str, values: dict[str, Any]) -> tuple[Sequence[Row], float, float]:
        """Rows, the time before sending, and how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.sent_at = clock.now()
        token = values.get("token")
        if token is not None:
            values["unheard"] = self._unheard.tokens(began)
        try:
            rows = await self._wire.fetch(self._sql[name], values)
        except BaseException:
            if token is not None:
                # It may have come about all the same, or still do so.
                self._unheard.add(token, loop.time() + max(values["ttls"]) + self._wire.timeout)
                self._lost()
            raise
        return rows, began, loop.time() - began

    def is_quick(self, took: float) -> bool:
        """Whether the claim could have brought twice as many in its time."""
        return took < QUICK * self._wire.timeout

    def suspect(self, doubt: Doubt) -> None:
        """A claim of one message failed: find out about that message, if it can be to blame."""
        if may_be_of_one(doubt.error):
            self.doubts = [doubt]

    async def examine(self) -> None:
        """Find out about the message that was last in doubt."""
        await self._culprits.examine(self.doubts.pop(), self.tokens())

    def arrived(self, numbers: Iterable[int]) -> None:
        """These messages could be fetched."""
        self._culprits.clear(numbers)

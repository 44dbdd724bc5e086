"""The connection that questions are asked on, which may be one to a read replica.

It is one of our own, so that no question stands in front of what delivers. A question that takes too long is given up
by the client and by the server, and fails for itself with an error that says so; so does one that the role may not ask.
Used by `Overview`.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.dedicated import DedicatedConnection, Row
from faststream_outbox._internal.connections.rights import missing_right, sqlstate_of
from faststream_outbox._internal.sql import Statement
from faststream_outbox.errors import QuestionTimedOut

_PLANS = "; set local enable_seqscan = off; set local enable_bitmapscan = off; set local jit = off"
CANCELLED = "57014"
"""The server's own time limit, or an operator's `pg_cancel_backend`."""


class AskingConnection(DedicatedConnection):
    """A connection for questions only."""

    def __init__(self, engine: AsyncEngine, *, timeout: float) -> None:
        super().__init__(engine, timeout=timeout, role="overview", on_standby=True)

    async def _set_limits(self, driver: Any, application_name: str) -> None:
        await super()._set_limits(driver, application_name)
        if self.pooled:
            # A direct connection has it for good. A table without statistics would be read and sorted for each slice.
            self._begin += _PLANS

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """Ask one statement."""
        # First, so that a server that cannot be reached is not taken for a slow question.
        await self.open()
        try:
            return await super().fetch(statement, values)
        except TimeoutError as error:
            raise self._too_slow(statement.name) from error
        except Exception as error:
            if sqlstate_of(error) == CANCELLED:
                raise self._too_slow(statement.name) from error
            missing = missing_right(error, statement)
            if missing is not None:
                raise missing from error
            raise

    @asynccontextmanager
    async def limited(self, question: str) -> AsyncGenerator[None]:
        """The statements of one question, which have its time together."""
        await self.open()
        try:
            async with asyncio.timeout(self.timeout):
                yield
        except QuestionTimedOut:
            raise
        except TimeoutError as error:
            raise self._too_slow(question) from error

    def _too_slow(self, what: str) -> QuestionTimedOut:
        return QuestionTimedOut(
            f"The question {what!r} took more than {self.timeout:g} seconds, and was given up. Give it more with "
            "Overview(…, timeout=…). If it was quick before, look for a transaction that has been open for long: the "
            "server has to pass over all that was deleted since."
        )

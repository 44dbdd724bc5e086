"""A gate on the log's own connection: holds named statements back until they are let go."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from faststream_outbox._internal.sql.statements import Statement
from faststream_outbox.log import Outbox


class Gate:
    """Stands in front of one client's connection; whoever gives up waiting has sent nothing."""

    def __init__(self, outbox: Outbox, *names: str) -> None:
        self._names = names
        self._connection = connection = outbox.client.connection
        self._fetch, self._fetch_each = connection.fetch, connection.fetch_each
        self.reached = asyncio.Event()
        """Set when a statement stands in front of it."""
        self.open = asyncio.Event()
        connection.fetch, connection.fetch_each = self.fetch, self.fetch_each  # type: ignore[method-assign]

    async def _pass(self, statement: Statement) -> None:
        if statement.name in self._names:
            self.reached.set()
            await self.open.wait()

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Any:
        await self._pass(statement)
        return await self._fetch(statement, values)

    async def fetch_each(self, steps: Sequence[tuple[Statement, Mapping[str, Any]]], **options: Any) -> Any:
        for statement, _ in steps:
            await self._pass(statement)
        return await self._fetch_each(steps, **options)

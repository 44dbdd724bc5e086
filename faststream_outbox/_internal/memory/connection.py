"""A connection of the queue engine's client that leads to tables in memory. Made by the client there."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from faststream_outbox._internal.connections.dedicated import STATEMENT_TIMEOUT, DedicatedConnection, Row
from faststream_outbox._internal.memory.tables import MemoryTables
from faststream_outbox._internal.sql import Statement


class MemoryConnection(DedicatedConnection):
    """Runs statements on tables in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self.pooled = False
        self.timeout = STATEMENT_TIMEOUT

    @property
    def is_open(self) -> bool:
        """There is nothing to connect to."""
        return True

    async def fetch(self, statement: Statement, values: Mapping[str, Any]) -> Sequence[Row]:
        """The rows that the statement returns."""
        # Others may run, as they do while a server answers.
        await asyncio.sleep(0)
        return self._tables.answer(statement.name, values)

    async def close(self) -> None:
        """Nothing is open."""

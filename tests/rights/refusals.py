"""Counts what the server refuses for want of a right."""

from collections import Counter
from typing import Any

import pytest

from faststream_outbox._internal.connections.cause import REFUSED, sqlstate_of
from faststream_outbox._internal.connections.dedicated import DedicatedConnection


def counting(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement is refused from now on, on the library's own connections."""
    failed: Counter[str] = Counter()
    fetch, fetch_each = DedicatedConnection.fetch, DedicatedConnection.fetch_each

    def count(name: str, error: Exception) -> None:
        if sqlstate_of(error) == REFUSED:
            failed[name] += 1

    async def fetched(connection: DedicatedConnection, statement: Any, values: Any) -> Any:
        try:
            return await fetch(connection, statement, values)
        except Exception as error:
            count(statement.name, error)
            raise

    async def fetched_each(connection: DedicatedConnection, steps: Any, **options: Any) -> Any:
        try:
            return await fetch_each(connection, steps, **options)
        except Exception as error:
            count(steps[-1][0].name, error)
            raise

    monkeypatch.setattr(DedicatedConnection, "fetch", fetched)
    monkeypatch.setattr(DedicatedConnection, "fetch_each", fetched_each)
    return failed

"""Counts what the server refuses for want of a right."""

from collections import Counter
from typing import Any

import pytest

from faststream_outbox.sql.rights import REFUSED, sqlstate_of
from faststream_outbox.sql.wire import Wire


def counting(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement is refused from now on, on the library's own connections."""
    failed: Counter[str] = Counter()
    fetch, fetch_each = Wire.fetch, Wire.fetch_each

    def count(name: str, error: Exception) -> None:
        if sqlstate_of(error) == REFUSED:
            failed[name] += 1

    async def fetched(wire: Wire, statement: Any, values: Any) -> Any:
        try:
            return await fetch(wire, statement, values)
        except Exception as error:
            count(statement.name, error)
            raise

    async def fetched_each(wire: Wire, steps: Any, **options: Any) -> Any:
        try:
            return await fetch_each(wire, steps, **options)
        except Exception as error:
            count(steps[-1][0].name, error)
            raise

    monkeypatch.setattr(Wire, "fetch", fetched)
    monkeypatch.setattr(Wire, "fetch_each", fetched_each)
    return failed

"""The stage on which the roles act: made once, emptied for each test."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from faststream_outbox._internal.connections.cause import REFUSED, sqlstate_of
from faststream_outbox._internal.connections.dedicated import DedicatedConnection
from tests.dashboard.place import Place
from tests.rights.stage import Stage


@pytest.fixture(scope="module")
def built(builder: Engine, database_url: URL) -> Iterator[Stage]:
    """Tables and roles, for the tests of one file."""
    stage = Stage(builder, database_url)
    stage.build()
    yield stage
    stage.clear()


@pytest.fixture
def stage(built: Stage) -> Iterator[Stage]:
    """The same, with empty tables."""
    yield built
    built.empty()


@pytest.fixture
async def place(stage: Stage, engine: AsyncEngine) -> Place:
    """The tables of the stage, with one of everything, as their owner sees them."""
    place = Place(engine, stage.table, stage.dlq_table, stage.log_tables)
    await place.fill()
    return place


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement is refused for want of a right, on the library's own connections."""
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

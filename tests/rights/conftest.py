"""The stage on which the roles act: made once, emptied for each test."""

from collections import Counter
from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.dashboard.place import Place
from tests.rights.refusals import counting
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
    """How often each statement was refused."""
    return counting(monkeypatch)

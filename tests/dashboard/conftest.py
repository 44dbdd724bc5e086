"""Tables for a dashboard, empty or filled."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.dashboard.place import Place
from tests.dashboard.visitor import Visitor, visiting
from tests.tables import all_existing


@pytest.fixture
async def empty(engine: AsyncEngine, builder: Engine) -> AsyncIterator[Place]:
    place = Place.described(engine)
    with all_existing(place.table.metadata.sorted_tables, builder):
        yield place
        await engine.dispose()


@pytest.fixture
async def place(empty: Place) -> Place:
    """Tables with one of everything."""
    await empty.fill()
    return empty


@pytest.fixture
async def visitor(place: Place) -> AsyncIterator[Visitor]:
    """Somebody whom a dashboard with one of everything lets in."""
    async with visiting(place.dashboard()) as visitor:
        yield visitor

"""Tables for a dashboard, empty or filled."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.dashboard.place import Place, create, drop


@pytest.fixture
async def empty(engine: AsyncEngine, builder: Engine) -> AsyncIterator[Place]:
    """Tables with nothing in them."""
    place = Place.described(engine)
    create(place, builder)
    yield place
    await engine.dispose()
    drop(place, builder)


@pytest.fixture
async def place(empty: Place) -> Place:
    """Tables with one of everything."""
    await empty.fill()
    return empty

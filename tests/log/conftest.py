"""A log for one test, on asyncpg or on each driver in turn, and ways to publish to it."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.log.rig import LogRig
from tests.log.ways import KINDS, WAYS, LogWay


@pytest.fixture
async def rig(engine: AsyncEngine) -> AsyncIterator[LogRig]:
    """A log whose tables are there for this test, on asyncpg."""
    async with LogRig.made(engine) as rig:
        yield rig


@pytest.fixture
async def driver_rig(driver_engine: AsyncEngine) -> AsyncIterator[LogRig]:
    """A log whose tables are there for this test, on each of the drivers in turn."""
    async with LogRig.made(driver_engine) as rig:
        yield rig


@pytest.fixture(params=WAYS)
async def any_way(request: pytest.FixtureRequest, database_url: URL, rig: LogRig) -> AsyncIterator[LogWay]:
    """Each way to publish in turn, begun."""
    async with LogWay.opened(request.param, database_url, rig.outbox) as way:
        await way.begin()
        yield way


@pytest.fixture(params=KINDS)
async def way(request: pytest.FixtureRequest, database_url: URL, rig: LogRig) -> AsyncIterator[LogWay]:
    """A way to publish of each kind in turn, begun."""
    async with LogWay.opened(request.param, database_url, rig.outbox) as way:
        await way.begin()
        yield way
